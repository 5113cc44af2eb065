// Where a weight element lies in the packed form that float and integer kernels read.
//
// A panel is kPanelLanes output columns, k running inside: panel p holds, for each k in turn, its
// lanes side by side, so a kernel streams the weight once and in order. Lanes past n hold zeros.
// For a gated epilogue a panel's first half is gate columns and its second half the up columns of
// the same outputs, so both sit in registers together.
//
// `interleave` k steps lie side by side in a lane: a packed step is kPanelLanes x interleave elements,
// lane l holding k = step * interleave onwards. So what is 4 bytes a lane and step is what the dot product
// instructions and AMX tiles read as it lies, and a shift and a mask widen two steps of bf16 from one load.
// Depth is padded with zeros to whole steps.
#pragma once

#include <cstdint>

#include "clikart/ir/dtype.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::ir {

inline constexpr int64_t kPanelLanes = 16;

struct PanelLayout {
  int64_t n = 0;      // weight rows
  int64_t depth = 0;  // K = taps * k
  DType dtype = DType::kFloat32;
  bool gated = false;
  int interleave = 1;  // k steps in a lane's unit: 1, 2 or 4

  // Outputs a panel yields: 16, or 8 when gated.
  int64_t OutputsPerPanel() const { return gated ? kPanelLanes / 2 : kPanelLanes; }
  int64_t outputs() const { return gated ? n / 2 : n; }
  int64_t Panels() const { return (outputs() + OutputsPerPanel() - 1) / OutputsPerPanel(); }
  int64_t Steps() const { return (depth + interleave - 1) / interleave; }  // packed ones
  int64_t StepBytes() const { return kPanelLanes * interleave * static_cast<int64_t>(SizeOf(dtype)); }
  int64_t PanelBytes() const { return Steps() * StepBytes(); }
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

  // Where RowOf finds a weight row.
  struct Place {
    int64_t panel, lane;
  };
  Place PlaceOf(int64_t row) const {
    if (!gated) return {row / kPanelLanes, row % kPanelLanes};
    const int64_t half = kPanelLanes / 2;
    if (row < n / 2) return {row / half, row % half};
    return {(row - n / 2) / half, half + (row - n / 2) % half};
  }
  // Byte offset inside a panel of lane `lane` at depth `k`.
  int64_t OffsetOf(int64_t lane, int64_t k) const {
    return k / interleave * StepBytes() + (lane * interleave + k % interleave) * static_cast<int64_t>(SizeOf(dtype));
  }
};

// How the weights of `spec` are packed.
inline PanelLayout LayoutOf(const KernelSpec& spec) {
  return {.n = spec.n, .depth = spec.depth(), .dtype = spec.w, .gated = spec.gated(), .interleave = spec.interleave};
}

}  // namespace clikart::ir
