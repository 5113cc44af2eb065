// What the library tells of itself: a line an event. docs/environment.md says what a line holds.
#pragma once

#include <atomic>
#include <string_view>

namespace clikart {

// CLIKART_VERBOSE: each level shows what those before it show.
inline constexpr int kLogWarning = 0;  // always
inline constexpr int kLogKernels = 1;  // kernels that are compiled, the first rejection of each reason
inline constexpr int kLogCache = 2;    // loads and hits of kernels, every rejection
inline constexpr int kLogRuns = 3;     // every launch of a kernel

namespace internal {
inline std::atomic<int> log_level{kLogWarning};  // Environment::Get() sets it
}  // namespace internal

// Whether lines of `level` are wanted, as far as the settings were read: one relaxed load, for hot paths.
inline bool Logs(int level) { return internal::log_level.load(std::memory_order_relaxed) >= level; }

// One whole line. Warnings go to standard error, and to CLIKART_VERBOSE_FILE too; other lines to the file or,
// without one, to standard error. One write, no lock, and neither errors nor signals come of it: safe on any
// thread and after fork.
void Log(int level, std::string_view message);

}  // namespace clikart
