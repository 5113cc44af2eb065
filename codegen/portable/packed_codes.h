// Quantized weights in their packed panels (ir/code_layout.h), group by group.
#pragma once

#include <cstdint>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "tile.h"

namespace clikart::codegen::portable {

// Weight rows [begin, end) of a kernel sum their inputs in one order.
struct OrderedRows {
  const int32_t* columns = nullptr;  // null: as they come
  int64_t begin = 0, end = 0;
};
std::vector<OrderedRows> OrdersOf(const ir::KernelSpec& spec, const CodeArgs& codes);

// `rows` rows of `k` values, their columns in that order.
template <typename T>
std::vector<T> Reorder(const std::vector<T>& values, int64_t rows, int64_t k, const int32_t* columns) {
  if (columns == nullptr) return values;
  std::vector<T> reordered(values.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      reordered[static_cast<size_t>(row * k + i)] = values[static_cast<size_t>(row * k + columns[i])];
    }
  }
  return reordered;
}

// What the headers of one panel's group say, and its codes.
class PackedGroup {
 public:
  // `panel` numbers the panels of the whole weight, `at` is that panel's address.
  PackedGroup(const ir::CodeLayout& layout, const CodeArgs& codes, int64_t panel, const std::byte* at, int64_t group);

  int64_t steps() const { return steps_; }
  // A second-level scale is multiplied in, once and in f32.
  const float* scales() const { return scales_; }
  const float* minimums() const { return minimums_; }
  // value - zero point of steps [first, first + count), as [step, lane].
  void Decode(int64_t first, int64_t count, float* to) const;

 private:
  const ir::CodeLayout& layout_;
  const float* values_;  // by code
  const std::byte* at_;
  int64_t steps_;
  float scales_[kLanes] = {};
  float minimums_[kLanes] = {};
  float zero_points_[kLanes] = {};
};

}  // namespace clikart::codegen::portable
