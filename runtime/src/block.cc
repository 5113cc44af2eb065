#include "block.h"

#include <sys/mman.h>

#include <cstdlib>

namespace clikart {
namespace {

// From here on huge pages pay: a weight of megabytes is streamed, and the TLB would limit it.
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kHugeFrom = 4 << 20;

}  // namespace

std::byte* AllocateBlock(size_t bytes) {
  const size_t alignment = bytes >= kHugeFrom ? kHugePage : kBlockAlignment;
  const size_t rounded = (bytes + kBlockAlignment - 1) & ~(kBlockAlignment - 1);
  void* data = nullptr;
  if (rounded < bytes || posix_memalign(&data, alignment, rounded) != 0) return nullptr;
  if (bytes >= kHugeFrom) madvise(data, rounded & ~(kHugePage - 1), MADV_HUGEPAGE);  // a wish, not a need
  return static_cast<std::byte*>(data);
}

}  // namespace clikart
