// Weights into panels (ir/panel_layout.h) and back, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "clikart/ir/dtype.h"
#include "clikart/ir/panel_layout.h"

namespace clikart {

// Rows of one part's weight in kernel order: [rows, depth], `row_stride` bytes apart. A convolution's
// weight [out, in/groups, *kernel] is read as [out][tap][channel]: element (row, tap, channel) at
// data + row * row_stride + (channel * taps + tap) * element size.
struct WeightRows {
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t row_stride = 0;  // bytes
  int64_t taps = 1;
  int64_t channels = 0;  // depth = taps * channels
};

// Packs panels [first, first + count) of the concatenation of `parts` to `out` (panel `first` at
// out[0]). One dtype for all. Safe to call for disjoint panels at once.
void PackPanels(const ir::PanelLayout& layout, std::span<const WeightRows> parts, int64_t first, int64_t count,
                std::byte* out);

// Rows [first_row, first_row + rows) of the packed weight, back in checkpoint order, contiguous.
void UnpackRows(const ir::PanelLayout& layout, const std::byte* packed, int64_t taps, int64_t first_row, int64_t rows,
                std::byte* out);

}  // namespace clikart
