// Quantized weights as checkpoints store them, read row by row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "clikart/codegen/kernel.h"

namespace clikart::codegen::portable {

// A run of at most `limit` weight rows that lie in one segment.
struct SegmentRows {
  const QuantSegment* segment = nullptr;
  int64_t first = 0;  // row inside the segment
  int64_t count = 0;
};
SegmentRows RowsFrom(std::span<const QuantSegment> segments, int64_t weight_row, int64_t limit);

// The order in which a segment's columns are summed: groups ascending, k ascending in a group. Group g
// is columns[begin[g]] .. columns[begin[g + 1] - 1].
struct ColumnOrder {
  std::vector<int32_t> columns;
  std::vector<int64_t> begin;
  int64_t groups() const { return static_cast<int64_t>(begin.size()) - 1; }
};
ColumnOrder OrderOf(const ir::KernelSpec& spec, const QuantSegment& segment);

// Reads codes and scales of one scheme.
class WeightReader {
 public:
  WeightReader(const ir::KernelSpec& spec, const QuantSegment& segment);

  // The code at [row, column], one byte or a nibble.
  uint8_t Code(int64_t row, int64_t column) const {
    const std::byte* codes = segment_.codes + row * row_bytes_;
    if (bits_ == 8) return static_cast<uint8_t>(codes[column]);
    return static_cast<uint8_t>(codes[column / 2] >> (column % 2 * 4)) & 15;
  }
  // What a group's codes are relative to; 0 for codebooks.
  int32_t ZeroPoint(int64_t row, int64_t group) const {
    if (segment_.zero_points != nullptr) return static_cast<int32_t>(segment_.zero_points[row * groups_ + group]);
    return midpoint_;
  }
  // float(code - zero point), exact: both are small integers, or the zero point is 0.
  float Value(uint8_t code, int32_t zero_point) const { return table_[code] - static_cast<float>(zero_point); }
  // The group's scale; a second-level scale is multiplied in, once and in f32.
  float Scale(int64_t row, int64_t group) const;

 private:
  const ir::QuantScheme& scheme_;
  const QuantSegment& segment_;
  int bits_;
  int64_t row_bytes_, groups_;
  int32_t midpoint_;
  const float* table_;  // of 256 codes, before the zero point
};

}  // namespace clikart::codegen::portable
