// The course of a warm-up: items made by several threads, told to one, summed up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>

#include "clikart/warmup.h"
#include "prepare_watch.h"

namespace clikart {

// Time since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What `watch` saw while `kernels` were asked for.
void Take(const PrepareWatch& watch, size_t kernels, WarmupItem& item);

class WarmupRecorder {
 public:
  // `total`: steps that the warm-up has in all. What is given must outlive this.
  WarmupRecorder(int64_t total, const WarmupProgress& progress, const std::stop_token& stop)
      : total_(total), progress_(progress), stop_(stop) {}

  // Steps that may run at the same time, `jobs` of them (0: as many as there are threads).
  absl::Status Run(int64_t steps, int jobs, const std::function<WarmupItem(int64_t)>& step);
  // One step on this thread; an Unimplemented one is passed over.
  absl::Status Run(const std::function<WarmupItem()>& step);
  WarmupReport Report();

 private:
  bool Tell(const WarmupItem& item);
  absl::Status Cancelled() const;

  const int64_t total_;
  const WarmupProgress& progress_;
  const std::stop_token& stop_;
  const Stopwatch watch_;
  int64_t done_ = 0;
  WarmupReport report_;
};

}  // namespace clikart
