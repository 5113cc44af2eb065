// Where a weight element lies in the packed form that float kernels read.
//
// A panel is kPanelLanes output columns, k running inside: panel p holds, for each k in turn, its
// lanes side by side, so a kernel streams the weight once and in order. Lanes past n hold zeros.
// For a gated epilogue a panel's first half is gate columns and its second half the up columns of
// the same outputs, so both sit in registers together.
//
// Inside a k step the lanes of f32 and f16 are in order; bf16 lanes are paired in dwords, lane i
// low and lane i + 8 high, so that a shift and a mask widen sixteen of them from one load.
#pragma once

#include <cstdint>

#include "clikart/ir/dtype.h"

namespace clikart::ir {

inline constexpr int64_t kPanelLanes = 16;

struct PanelLayout {
  int64_t n = 0;      // weight rows
  int64_t depth = 0;  // K = taps * k
  DType dtype = DType::kFloat32;
  bool gated = false;

  // Outputs a panel yields: 16, or 8 when gated.
  int64_t OutputsPerPanel() const { return gated ? kPanelLanes / 2 : kPanelLanes; }
  int64_t outputs() const { return gated ? n / 2 : n; }
  int64_t Panels() const { return (outputs() + OutputsPerPanel() - 1) / OutputsPerPanel(); }
  int64_t StepBytes() const { return kPanelLanes * static_cast<int64_t>(SizeOf(dtype)); }
  int64_t PanelBytes() const { return depth * StepBytes(); }
  int64_t TotalBytes() const { return Panels() * PanelBytes(); }

  // The weight row that lane `lane` of panel `panel` holds, or -1 for padding.
  int64_t RowOf(int64_t panel, int64_t lane) const {
    const int64_t half = kPanelLanes / 2;
    if (!gated) {
      const int64_t row = panel * kPanelLanes + lane;
      return row < n ? row : -1;
    }
    const int64_t output = panel * half + lane % half;
    if (output >= n / 2) return -1;
    return lane < half ? output : n / 2 + output;
  }

  // Element position of `lane` inside one k step.
  int64_t LanePosition(int64_t lane) const {
    if (dtype != DType::kBFloat16) return lane;
    const int64_t half = kPanelLanes / 2;
    return lane < half ? 2 * lane : 2 * (lane - half) + 1;
  }
};

}  // namespace clikart::ir
