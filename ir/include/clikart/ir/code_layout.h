// Where quantized weights lie in the packed form that kernels read: codes, scales and zero points in one stream.
//
// A panel is kPanelLanes output columns, as in panel_layout.h. Its groups follow one another; a group is a header
// and its codes:
//
//   scales       [16 lanes], as stored in the checkpoint
//   minimums     [16 lanes], in the scales' type, where the scheme has them
//   zero points  [16 lanes] bytes, where the scheme has them
//   codes        units of 16 lanes; a lane's unit is `interleave` codes from the low bit up, in the order of k
//
// Codes of fewer than eight bits come in units of 32 bits a lane, so that a shift and a mask reach any of them. A
// group takes whole units. Bytes are those of the checkpoint, so that the pack is the one resident copy: only
// int8 codes that are multiplied as unsigned ones (compute="int8") have their top bit turned.
#pragma once

#include <cstdint>
#include <span>

#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "clikart/ir/quant_scheme.h"

namespace clikart::ir {

// Codes of a lane that lie side by side: 1 byte a unit where bytes are widened one by one, else 32 bits.
constexpr int CodeInterleave(Contraction contraction, const QuantScheme& scheme) {
  return scheme.bits == 8 && contraction == Contraction::kWeightOnly ? 1 : 32 / scheme.bits;
}

struct CodeLayout {
  PanelLayout panels;  // the lanes' rows
  QuantScheme scheme;
  int interleave = 1;
  bool turned = false;  // int8 codes are packed with the top bit turned
  // [groups + 1] positions in the order of k where groups differ in size (InputOrder::kUneven); else empty.
  std::span<const int64_t> group_begins;

  int64_t depth() const { return panels.depth; }
  int64_t Groups() const { return scheme.GroupCount(depth()); }
  // The first position of a group, and of what follows the last one.
  int64_t GroupBegin(int64_t group) const {
    if (!group_begins.empty()) return group_begins[static_cast<size_t>(group)];
    const int64_t begin = group * GroupSize();
    return begin < depth() ? begin : depth();
  }
  int64_t GroupSteps(int64_t group) const { return GroupBegin(group + 1) - GroupBegin(group); }

  int64_t ScaleBytes() const { return static_cast<int64_t>(SizeOf(scheme.ScaleDType())); }
  int64_t UnitBytes() const { return kPanelLanes * interleave * scheme.bits / 8; }
  int64_t UnitsOf(int64_t steps) const { return (steps + interleave - 1) / interleave; }

  // Inside a group.
  int64_t ScaleAt(int64_t lane) const { return lane * ScaleBytes(); }
  int64_t MinimumAt(int64_t lane) const { return (kPanelLanes + lane) * ScaleBytes(); }
  int64_t ZeroPointAt(int64_t lane) const { return kPanelLanes * ScaleBytes() + lane; }
  int64_t CodesAt() const {
    return kPanelLanes * (ScaleBytes() * (scheme.minimum ? 2 : 1) + (scheme.HasZeroPoint() ? 1 : 0));
  }
  // The byte that the code of a lane at `step` of its group is in, and its lowest bit there.
  int64_t CodeAt(int64_t lane, int64_t step) const {
    return CodesAt() + step / interleave * UnitBytes() + (lane * interleave + step % interleave) * scheme.bits / 8;
  }
  int CodeShift(int64_t step) const { return static_cast<int>(step % interleave * scheme.bits % 8); }
  int64_t GroupBytes(int64_t steps) const { return CodesAt() + UnitsOf(steps) * UnitBytes(); }

  // Inside a panel.
  int64_t GroupAt(int64_t group) const {
    if (group_begins.empty()) return group * GroupBytes(GroupSize());
    int64_t at = 0;
    for (int64_t before = 0; before < group; ++before) at += GroupBytes(GroupSteps(before));
    return at;
  }
  int64_t PanelBytes() const {
    const int64_t groups = Groups();
    return groups == 0 ? 0 : GroupAt(groups - 1) + GroupBytes(GroupSteps(groups - 1));
  }
  int64_t TotalBytes() const { return panels.Panels() * PanelBytes(); }

 private:
  int64_t GroupSize() const { return scheme.group_size == -1 ? depth() : scheme.group_size; }
};

// How the weights of `spec` are packed, which is one of quantized weights.
inline CodeLayout CodeLayoutOf(const KernelSpec& spec, std::span<const int64_t> group_begins = {}) {
  return {.panels = {.n = spec.n, .depth = spec.depth(), .dtype = DType::kUInt8, .gated = spec.gated()},
          .scheme = *spec.scheme,
          .interleave = spec.interleave,
          .turned = spec.contraction == Contraction::kRowInt8 && spec.scheme->CodeDType() == DType::kInt8,
          .group_begins = group_begins};
}

// Bytes of a panel of `spec`'s weights; where groups are uneven they say how many.
inline int64_t PackedPanelBytes(const KernelSpec& spec, std::span<const int64_t> group_begins = {}) {
  return spec.quantized_weights() ? CodeLayoutOf(spec, group_begins).PanelBytes() : LayoutOf(spec).PanelBytes();
}

}  // namespace clikart::ir
