// Executable memory that is never writable and executable at once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "absl/status/statusor.h"

namespace clikart {

// A piece of an arena; the bytes stay executable as long as it lives.
class ExecutableBlock {
 public:
  virtual ~ExecutableBlock() = default;
  virtual const uint8_t* data() const = 0;
  virtual size_t size() const = 0;
};

// Copies `code` to executable memory, 64-byte aligned. Arenas of one memfd, written as a file, so
// few mappings serve many kernels and none is writable. PermissionDenied (with the
// policy's likely name and the remedy) where the system refuses; ResourceExhausted out of memory.
absl::StatusOr<std::shared_ptr<ExecutableBlock>> MakeExecutable(std::span<const uint8_t> code);

// The same in private pages of its own where those are allowed: perf looks up /tmp/perf-<pid>.map for pages
// without a file alone.
absl::StatusOr<std::shared_ptr<ExecutableBlock>> MakeExecutableForPerfMap(std::span<const uint8_t> code);

// For pthread_atfork: guards the memory that is being filled. A child fills memory of its own.
std::mutex& ExecutableMemoryMutex();
void LeaveParentsExecutableMemory();  // under the lock

}  // namespace clikart
