// Which instructions of a kernel were executed, and how often: told by stepping through it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "case.h"
#include "clikart/codegen/kernel.h"

namespace clikart::codegen {

struct Trace {
  Case c;
  uint64_t code_hash = 0;           // of the kernel's code, to know it again
  std::map<int32_t, int64_t> hits;  // by offset in the code

  // One line; the machine that steps need not be the one that decodes.
  std::string ToString() const;
  static absl::StatusOr<Trace> Parse(std::string_view line);
};

uint64_t HashOf(const EmittedKernel& kernel);

// Every kind of kernel that there may be for `target`.
std::vector<Case> TraceCases(const Emitter& emitter, const Target& target);

// Runs the kernel of `c` an instruction at a time, with as many rows as bring it to each of its loops. The
// result is not looked at.
Trace Step(const Case& c, const EmittedKernel& kernel);

}  // namespace clikart::codegen
