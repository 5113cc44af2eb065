// What belongs to one thread: its MXCSR and its scratch.
#include <xmmintrin.h>

#include <memory>
#include <new>

#include "parallel.h"

namespace clikart {
namespace {

constexpr unsigned kMxcsr = 0x1F80;
// The sticky exception flags say nothing about how results round.
constexpr unsigned kFlags = 0x3F;

constexpr std::align_val_t kAlignment{64};

class Scratch {
 public:
  ~Scratch() { Free(); }

  std::byte* Get(size_t bytes) {
    // One large layer should not hold its megabytes for ever, nor may a model that alternates
    // between large and small layers pay for it: memory goes back after a run of small requests.
    const bool small = size_ > kKeep && bytes < size_ / 4;
    small_requests_ = small ? small_requests_ + 1 : 0;
    if (bytes > size_ || small_requests_ > kPatience) {
      Free();
      const size_t rounded = (bytes + kStep - 1) / kStep * kStep;
      data_ = static_cast<std::byte*>(::operator new(rounded, kAlignment));
      size_ = rounded;
      small_requests_ = 0;
    }
    return data_;
  }

 private:
  static constexpr size_t kStep = 4096, kKeep = 1 << 20;
  static constexpr int kPatience = 1000;

  void Free() {
    ::operator delete(data_, kAlignment);
    data_ = nullptr;
    size_ = 0;
  }

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int small_requests_ = 0;
};

}  // namespace

std::byte* ThreadScratch(size_t bytes) {
  thread_local Scratch scratch;
  return scratch.Get(bytes);
}

std::byte* LaunchScratch(size_t bytes) {
  thread_local Scratch scratch;
  return scratch.Get(bytes);
}

MxcsrScope::MxcsrScope() : saved_(_mm_getcsr()), changed_((saved_ & ~kFlags) != kMxcsr) {
  if (changed_) _mm_setcsr(kMxcsr);
}

MxcsrScope::~MxcsrScope() {
  if (changed_) _mm_setcsr(saved_);
}

}  // namespace clikart
