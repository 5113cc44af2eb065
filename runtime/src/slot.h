// A place for an immutable value that threads read while another one replaces it.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

namespace clikart {

// Readers hold the value they took for as long as they like. The lock is one bit, held for one pointer
// copy: every forward passes through here, and a mutex would cost more than the copy.
template <typename T>
class Slot {
 public:
  Slot() = default;
  explicit Slot(std::shared_ptr<T> value) : value_(std::move(value)) {}

  std::shared_ptr<T> Load() const {
    Lock();
    std::shared_ptr<T> copy = value_;
    Unlock();
    return copy;
  }

  // The old value goes after the lock is dropped: freeing it may take long.
  void Store(std::shared_ptr<T> value) {
    Lock();
    value_.swap(value);
    Unlock();
  }

 private:
  void Lock() const {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      // The holder may have lost its CPU inside: let it run.
      while (locked_.load(std::memory_order_relaxed)) std::this_thread::yield();
    }
  }
  void Unlock() const { locked_.store(false, std::memory_order_release); }

  mutable std::atomic<bool> locked_{false};
  std::shared_ptr<T> value_;
};

}  // namespace clikart
