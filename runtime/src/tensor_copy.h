// Strided copies between tensors: any strides, any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "clikart/ir/dtype.h"
#include "clikart/tensor.h"

namespace clikart {

// One side of a copy: where element 0 lies, and the strides in elements.
struct StridedBytes {
  std::byte* data = nullptr;
  std::span<const int64_t> strides;
};

// Copies `shape` elements of `size` bytes (1, 2 or 4) from `from` to `to`.
void CopyStrided(std::span<const int64_t> shape, size_t size, const StridedBytes& from, const StridedBytes& to);

// Converts `count` contiguous elements between float types (or copies between equal types): to
// nearest even, NaNs stay NaNs. Addresses need no alignment.
void ConvertFloats(const std::byte* from, ir::DType from_type, std::byte* to, ir::DType to_type, int64_t count);

}  // namespace clikart
