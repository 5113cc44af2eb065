// Quantized weights as checkpoints store them, read row by row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "decode.h"

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
  bool natural = true;  // columns are 0, 1, 2, ...
  int64_t Begin(int64_t group) const { return begin[static_cast<size_t>(group)]; }
  int64_t groups() const { return static_cast<int64_t>(begin.size()) - 1; }
};
ColumnOrder OrderOf(const ir::KernelSpec& spec, const QuantSegment& segment);

// Reads codes and scales of one scheme.
class WeightReader {
 public:
  WeightReader(const ir::KernelSpec& spec, const QuantSegment& segment);

  // Calls sink(i, what the code at [row, columns[i]] stands for) for i below count; the difference to
  // the group's zero point is exact: both are small integers, or the zero point is 0.
  template <typename Sink>
  void ForCodes(int64_t row, const int32_t* columns, int64_t count, Sink sink) const {
    const uint8_t* codes = Row(row);
    const float* values = table_.values;
    if (table_.bits == 8) {
      for (int64_t i = 0; i < count; ++i) sink(i, values[codes[columns[i]]]);
    } else {
      for (int64_t i = 0; i < count; ++i) sink(i, values[codes[columns[i] / 2] >> (columns[i] % 2 * 4) & 15]);
    }
  }
  const CodeTable& table() const { return table_; }
  const uint8_t* Row(int64_t row) const { return reinterpret_cast<const uint8_t*>(segment_.codes + row * row_bytes_); }
  // What a group's codes are relative to; 0 for codebooks.
  float ZeroPoint(int64_t row, int64_t group) const {
    if (segment_.zero_points == nullptr) return midpoint_;
    return static_cast<float>(static_cast<uint8_t>(segment_.zero_points[row * groups_ + group]));
  }
  // The group's scale; a second-level scale is multiplied in, once and in f32.
  float Scale(int64_t row, int64_t group) const;

 private:
  const ir::QuantScheme& scheme_;
  const QuantSegment& segment_;
  CodeTable table_;
  int64_t row_bytes_, groups_;
  float midpoint_;
};

}  // namespace clikart::codegen::portable
