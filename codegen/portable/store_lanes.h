// From a panel's lanes to the accumulators of their columns.
#pragma once

#include <cstdint>

#include "clikart/ir/panel_layout.h"
#include "tile.h"

namespace clikart::codegen::portable {

// The lanes of a panel whose weight row is in [begin, end).
class PanelLanes {
 public:
  PanelLanes(const ir::PanelLayout& layout, int64_t panel, int64_t begin, int64_t end)
      : width_(layout.OutputsPerPanel()) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t row = layout.RowOf(panel, lane);
      if (row >= begin && row < end) mask_ |= 1u << lane;
    }
  }
  bool empty() const { return mask_ == 0; }
  bool Has(int64_t lane) const { return (mask_ >> lane & 1) != 0; }
  int64_t width() const { return width_; }

 private:
  int64_t width_;
  uint32_t mask_ = 0;
};

// acc[row, lane] of a panel whose first output is `column` of the block. A gated panel holds its gates in the first
// lanes and the ups of the same outputs in the others: each half is a plane.
inline void StoreLanes(const PanelLanes& lanes, const float* acc, int64_t column, Accumulators& accumulators) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    if (!lanes.Has(lane)) continue;
    const int64_t plane = lane / lanes.width(), at = column + lane % lanes.width();
    for (int64_t row = 0; row < accumulators.rows(); ++row) {
      accumulators.Row(plane, row)[at] = acc[row * kLanes + lane];
    }
  }
}

}  // namespace clikart::codegen::portable
