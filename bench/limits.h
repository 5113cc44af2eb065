// What this machine can do at most: the yardsticks of the benchmarks, measured beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace clikart::bench {

// Seconds that `job` takes. On one thread that thread's own CPU time, which other programs on the
// machine disturb less; a job on several threads needs the wall clock.
double Seconds(int threads, const std::function<void()>& job);

// Wall time from the first start to the last end of job(i) on thread i. Several threads are made for it, each on
// a CPU of its own, and start together: making them is not timed.
double SecondsOnThreads(int threads, const std::function<void(int)>& job);

class Limits {
 public:
  // `widest_fma`: bits of the widest fma that may be used, 256 or 512.
  explicit Limits(int widest_fma);
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  // One measurement each, of some ten milliseconds; take it next to what is compared with it.
  // Multiply-adds count as two. The widest fma on independent accumulators.
  double FlopsPerSecond(int threads) const;
  // Reading a buffer far larger than the last-level cache: the better of one and four streams a thread.
  double BytesPerSecond(int threads) const;

 private:
  int widest_fma_;
  std::byte* buffer_;
};

}  // namespace clikart::bench
