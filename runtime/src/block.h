// Blocks of bytes behind memories of more than a page or two.
#pragma once

#include <cstddef>

namespace clikart {

// Where packs and tensors begin: cache lines.
inline constexpr size_t kBlockAlignment = 64;

// Up to here the bytes of a memory share one allocation with its header: a small forward's output costs two trips to
// malloc and no more.
inline constexpr size_t kSmallMemory = 64 << 10;

// Uninitialized and aligned, of huge pages where it is large; null where the system has none. std::free takes it back.
std::byte* AllocateBlock(size_t bytes);

}  // namespace clikart
