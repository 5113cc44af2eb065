#include "warmup_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/runtime.h"
#include "jobs.h"

namespace clikart {

void Take(const PrepareWatch& watch, size_t kernels, WarmupItem& item) {
  item.compiled = watch.compiled;
  item.loaded = watch.loaded;
  item.rejected = watch.rejected;
  item.rejections = watch.rejections;
  item.packed = watch.packed;
  item.cached = std::max<int64_t>(0, static_cast<int64_t>(kernels) - item.compiled - item.loaded - item.rejected);
}

absl::Status WarmupRecorder::Run(int64_t steps, int jobs, const std::function<WarmupItem(int64_t)>& step) {
  const size_t first = report_.items.size();
  report_.items.resize(first + static_cast<size_t>(steps));
  const auto item = [&](int64_t i) -> WarmupItem& { return report_.items[first + static_cast<size_t>(i)]; };
  const bool all = RunJobs(
      steps, jobs > 0 ? jobs : GetNumThreads(), stop_, [&](int64_t i) { item(i) = step(i); },
      [&](int64_t i) { return Tell(item(i)); });
  return all ? absl::OkStatus() : Cancelled();
}

absl::Status WarmupRecorder::Run(const std::function<WarmupItem()>& step) {
  if (stop_.stop_requested()) return Cancelled();
  WarmupItem item = step();
  const bool passed_over = absl::IsUnimplemented(item.status);
  if (passed_over) item = {};
  const bool go_on = Tell(item);
  if (!passed_over) report_.items.push_back(std::move(item));
  return go_on ? absl::OkStatus() : Cancelled();
}

WarmupReport WarmupRecorder::Report() {
  for (const WarmupItem& item : report_.items) {
    report_.compiled += item.compiled;
    report_.loaded += item.loaded;
    report_.cached += item.cached;
    report_.rejected += item.rejected;
    report_.packed += item.packed;
    if (!item.status.ok()) ++report_.failed;
  }
  report_.seconds = watch_.seconds();
  return std::move(report_);
}

bool WarmupRecorder::Tell(const WarmupItem& item) {
  ++done_;
  return progress_ == nullptr || progress_(done_, total_, item);
}

absl::Status WarmupRecorder::Cancelled() const {
  return absl::CancelledError(absl::StrCat("warm-up cancelled after ", done_, " of ", total_, " steps"));
}

}  // namespace clikart
