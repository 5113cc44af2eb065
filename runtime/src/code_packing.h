// Quantized weights into panels (ir/code_layout.h) and back, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "clikart/ir/code_layout.h"

namespace clikart {

// One part's quantized weight as its checkpoint stores it (spec/api.md, QLinearWoQ), rows in kernel order.
struct CodeRows {
  int64_t rows = 0;
  const std::byte* codes = nullptr;        // [rows, QuantScheme::CodeBytes]
  const std::byte* scales = nullptr;       // [rows, groups] of the scheme's type
  const std::byte* minimums = nullptr;     // likewise, where the scheme has them
  const std::byte* zero_points = nullptr;  // uint8 [rows, groups], likewise
  const int32_t* columns = nullptr;        // [k] inputs sorted by group; null: as they come
};

// Packs panels [first, first + count) of the concatenation of `parts` to `out` (panel `first` at out[0]). Safe to
// call for disjoint panels at once.
void PackCodePanels(const ir::CodeLayout& layout, std::span<const CodeRows> parts, int64_t first, int64_t count,
                    std::byte* out);

// Weight rows [first_row, first_row + rows) back in checkpoint order, contiguous. The bits behind a row's last code
// are zeros.
void UnpackCodes(const ir::CodeLayout& layout, const std::byte* packed, const int32_t* columns, int64_t first_row,
                 int64_t rows, std::byte* out);

// What a group's header has for each lane.
enum class HeaderField : uint8_t { kScale, kMinimum, kZeroPoint };
// [rows, groups] of the field's type, of weight rows [first_row, first_row + rows).
void UnpackHeaders(const ir::CodeLayout& layout, const std::byte* packed, HeaderField field, int64_t first_row,
                   int64_t rows, std::byte* out);

}  // namespace clikart
