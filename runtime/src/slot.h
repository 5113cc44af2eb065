// A place for an immutable value that threads read while another one replaces it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "process_hooks.h"

namespace clikart {

// Readers hold the value they took for as long as they like. The lock is one word, held for one pointer
// copy: every forward passes through here, and a mutex would cost more than the copy. A fork waits for those who
// store, by StructureMutex(), and not for readers: a child takes the lock from the ones that it does not have.
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
    const uint32_t self = ProcessNumber();
    uint32_t seen = kNobody;
    while (!holder_.compare_exchange_weak(seen, self, std::memory_order_acquire, std::memory_order_relaxed)) {
      if (seen != self) continue;
      // The holder may have lost its CPU inside: let it run.
      std::this_thread::yield();
      seen = kNobody;
    }
  }
  void Unlock() const { holder_.store(kNobody, std::memory_order_release); }

  static constexpr uint32_t kNobody = 0;
  mutable std::atomic<uint32_t> holder_{kNobody};  // by ProcessNumber()
  std::shared_ptr<T> value_;
};

}  // namespace clikart
