#include "block_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "absl/container/inlined_vector.h"
#include "block.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace clikart {
namespace {

// So few that looking through them costs nothing beside the work on a block.
constexpr size_t kMostBlocks = 64;

// Sizes in steps of an eighth to a sixteenth, so that requests that differ by a few rows share blocks.
size_t Rounded(size_t bytes) {
  const size_t step = std::max<size_t>(kBlockAlignment, std::bit_floor(bytes) / 8);
  const size_t rounded = (bytes + step - 1) / step * step;
  return rounded < bytes ? bytes : rounded;
}

// An output that is kept by its owner should hold little more than it needs.
bool Fits(const Block& block, size_t bytes) { return block.bytes >= bytes && block.bytes - bytes <= bytes / 4; }

void Free(Block block) {
  ASAN_UNPOISON_MEMORY_REGION(block.data, block.bytes);
  std::free(block.data);
}

}  // namespace

BlockCache::~BlockCache() {
  for (const Block& block : kept_) Free(block);
}

Block BlockCache::Take(size_t bytes) {
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    // The last one given is likeliest to be in a cache of the CPU.
    const auto found =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const Block& block) { return Fits(block, bytes); });
    Block block;
    if (found != kept_.rend()) {
      block = *found;
      kept_bytes_ -= block.bytes;
      kept_.erase(std::next(found).base());
    }
    lock.unlock();
    if (block.data != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(block.data, block.bytes);
      return block;
    }
  }
  const size_t rounded = budget_ == 0 ? bytes : Rounded(bytes);
  return {AllocateBlock(rounded), rounded};
}

void BlockCache::Give(Block block) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (block.bytes > budget_ || !lock) return Free(block);
  ASAN_POISON_MEMORY_REGION(block.data, block.bytes);
  kept_.push_back(block);
  kept_bytes_ += block.bytes;
  absl::InlinedVector<Block, 4> out;
  for (auto oldest = kept_.begin(); kept_bytes_ > budget_ || static_cast<size_t>(kept_.end() - oldest) > kMostBlocks;
       ++oldest) {
    out.push_back(*oldest);
    kept_bytes_ -= oldest->bytes;
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(out.size()));
  lock.unlock();
  for (const Block& each : out) Free(each);
}

size_t BlockCache::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace clikart
