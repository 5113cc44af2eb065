// Who is counting on this thread.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "clikart/runtime.h"
#include "dispatch.h"

namespace clikart {
namespace {

// The counters of one thread. A counter may end on another thread than it began on (a Python object
// that is collected there), so the list is shared and locked; nobody takes the lock while nobody counts.
struct Counters {
  std::mutex mutex;
  std::vector<struct Tally*> tallies;
  std::atomic<int> count{0};
};

struct Tally {
  std::shared_ptr<Counters> counters;
  int64_t total = 0;
  absl::btree_map<std::string, int64_t> by_kernel;
};

// Null until this thread first counts: the test that every launch pays.
thread_local Counters* counting = nullptr;

std::shared_ptr<Counters> CountersOfThisThread() {
  thread_local const auto counters = std::make_shared<Counters>();
  counting = counters.get();
  return counters;
}

}  // namespace

struct DispatchCounter::Impl {
  Tally tally;
};

DispatchCounter::DispatchCounter() : impl_(std::make_unique<Impl>()) {
  Tally& tally = impl_->tally;
  tally.counters = CountersOfThisThread();
  const std::lock_guard lock(tally.counters->mutex);
  tally.counters->tallies.push_back(&tally);
  tally.counters->count.fetch_add(1, std::memory_order_relaxed);
}

DispatchCounter::~DispatchCounter() {
  Tally& tally = impl_->tally;
  const std::lock_guard lock(tally.counters->mutex);
  auto& tallies = tally.counters->tallies;
  tallies.erase(std::find(tallies.begin(), tallies.end(), &tally));
  tally.counters->count.fetch_sub(1, std::memory_order_relaxed);
}

int64_t DispatchCounter::total() const {
  const std::lock_guard lock(impl_->tally.counters->mutex);
  return impl_->tally.total;
}

absl::btree_map<std::string, int64_t> DispatchCounter::by_kernel() const {
  const std::lock_guard lock(impl_->tally.counters->mutex);
  return impl_->tally.by_kernel;
}

void CountDispatch(const std::string& kernel) {
  if (counting == nullptr || counting->count.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(counting->mutex);
  for (Tally* tally : counting->tallies) {
    ++tally->total;
    ++tally->by_kernel[kernel];
  }
}

}  // namespace clikart
