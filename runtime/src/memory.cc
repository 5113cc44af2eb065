// Memory and Storage: who owns the bytes behind a tensor.
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "block.h"
#include "clikart/tensor.h"

namespace clikart {
namespace {

// Room for the control block that allocate_shared puts before the data.
constexpr size_t kHeader = 128;

// Hands a block that malloc gave already to allocate_shared, so that want of memory is a status.
template <typename T>
struct BlockAllocator {
  using value_type = T;
  void* block;

  explicit BlockAllocator(void* ready) : block(ready) {}
  template <typename U>
  BlockAllocator(const BlockAllocator<U>& other) : block(other.block) {}

  T* allocate(size_t) {
    static_assert(sizeof(T) <= kHeader);
    return static_cast<T*>(block);
  }
  void deallocate(T* done, size_t) { std::free(done); }
  template <typename U>
  bool operator==(const BlockAllocator<U>& other) const {
    return block == other.block;
  }
};

absl::Status NoMemory(size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
}

std::byte* AlignUp(void* address) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(address) + kBlockAlignment - 1) &
                                      ~(kBlockAlignment - 1));
}

}  // namespace

// Opens Memory's constructor to make_shared and allocate_shared.
struct MemoryAccess {
  struct Made : Memory {
    Made(std::byte* data, size_t bytes, std::shared_ptr<void> owner, bool owned, Access access)
        : Memory(data, bytes, std::move(owner), owned, access) {}
  };
  // The data begins behind this object, in the same allocation.
  struct Tail : Memory {
    explicit Tail(size_t bytes) : Memory(AlignUp(this + 1), bytes, nullptr, false) {}
  };
};

Memory::Memory(std::byte* data, size_t bytes, std::shared_ptr<void> owner, bool owned, Access access)
    : data_(data), bytes_(bytes), owner_(std::move(owner)), access_(access), owned_(owned) {}

Memory::~Memory() {
  if (owned_) std::free(data_);
}

absl::StatusOr<std::shared_ptr<Memory>> Memory::Allocate(size_t bytes) {
  if (bytes <= kSmallMemory) {
    void* block = std::malloc(kHeader + bytes + kBlockAlignment);
    if (block == nullptr) return NoMemory(bytes);
    return std::shared_ptr<Memory>(
        std::allocate_shared<MemoryAccess::Tail>(BlockAllocator<MemoryAccess::Tail>(block), bytes));
  }
  std::byte* const data = AllocateBlock(bytes);
  if (data == nullptr) return NoMemory(bytes);
  return std::shared_ptr<Memory>(std::make_shared<MemoryAccess::Made>(data, bytes, nullptr, true, Access::kReadWrite));
}

std::shared_ptr<Memory> Memory::Wrap(std::byte* data, size_t bytes, std::shared_ptr<void> owner, Access access) {
  return std::make_shared<MemoryAccess::Made>(data, bytes, std::move(owner), false, access);
}

Storage::Storage(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

std::shared_ptr<Memory> Storage::memory() const {
  const uint32_t before = state_.fetch_add(1, std::memory_order_acquire);
  std::shared_ptr<Memory> copy;
  if ((before & kReleased) == 0) copy = memory_;
  Leave();
  return copy;
}

void Storage::Release() {
  if (state_.fetch_or(kReleased, std::memory_order_acq_rel) == 0) DropOnce();
}

void Storage::Leave() const {
  if (state_.fetch_sub(1, std::memory_order_acq_rel) == (kReleased | 1)) DropOnce();
}

// Called where nobody is inside. A late reader may come and go meanwhile and call this too: it does
// not touch memory_, and one of the two wins.
void Storage::DropOnce() const {
  uint32_t expected = kReleased;
  if (state_.compare_exchange_strong(expected, kReleased | kDropped, std::memory_order_acq_rel)) memory_.reset();
}

}  // namespace clikart
