// A place for an immutable value that threads read while another one replaces it.
#pragma once

#include <memory>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace clikart {

// Readers hold the value they took for as long as they like; the lock covers one pointer copy only.
template <typename T>
class Slot {
 public:
  Slot() = default;
  explicit Slot(std::shared_ptr<T> value) : value_(std::move(value)) {}

  std::shared_ptr<T> Load() const {
    absl::MutexLock lock(&mutex_);
    return value_;
  }

  // The old value goes after the lock is dropped: freeing it may take long.
  void Store(std::shared_ptr<T> value) {
    mutex_.Lock();
    value_.swap(value);
    mutex_.Unlock();
  }

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<T> value_;
};

}  // namespace clikart
