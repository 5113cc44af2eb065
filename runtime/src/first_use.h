// A value of the process that is made when it is first asked for. A fork waits for the making: a child finds the
// value made, or makes it. A function's static variable would leave it half made for ever.
#pragma once

#include <atomic>
#include <mutex>

namespace clikart {

// Guards the making of all of them, which may ask for one another; held over a fork.
std::recursive_mutex& FirstUseMutex();

template <typename T>
class FirstUse {
 public:
  // `make` gives a pointer that is kept for ever.
  template <typename Make>
  T& Get(Make make) {
    if (T* made = Peek()) return *made;
    const std::lock_guard lock(FirstUseMutex());
    if (T* made = Peek()) return *made;
    T* const made = make();
    value_.store(made, std::memory_order_release);
    return *made;
  }
  // Null where nobody has asked yet.
  T* Peek() const { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> value_{nullptr};
};

}  // namespace clikart
