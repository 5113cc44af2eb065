// Work that takes long enough for threads of its own, while the caller looks on.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

namespace clikart {

// Runs job(0) to job(count - 1) on up to `threads` threads, and finished(i) on the calling one after each, one at a
// time and in the order in which they end; at most `threads` jobs are ahead of what was told. Once `finished` answers
// false or `stop` is requested no further job begins; those that run are waited for. Whether all ran and finished.
// Neither function may throw.
bool RunJobs(int64_t count, int threads, const std::stop_token& stop, const std::function<void(int64_t)>& job,
             const std::function<bool(int64_t)>& finished);

}  // namespace clikart
