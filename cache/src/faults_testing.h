// System calls of which one fails, for tests.
#pragma once

#include <cerrno>
#include <cstdint>

#include "clikart/cache/system_calls.h"

namespace clikart::cache {

// The real ones, less the waiting for a disk.
const SystemCalls& QuickCalls();

// While it lives, the table's call number `at` (from 0) fails with `error`; all are counted. One at a time.
class Fault {
 public:
  Fault(int64_t at, int error);
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  const SystemCalls& calls() const;
  int64_t made() const;
};

}  // namespace clikart::cache
