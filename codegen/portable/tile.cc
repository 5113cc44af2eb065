#include "tile.h"

#include <algorithm>
#include <cstring>

namespace clikart::codegen::portable {

Columns TileColumns(const ir::KernelSpec& spec, const TileArgs& args) {
  const ir::PanelLayout layout = ir::LayoutOf(spec);
  const int64_t width = layout.OutputsPerPanel();
  const int64_t begin = std::min(args.first_panel * width, layout.outputs());
  return {begin, std::min((args.first_panel + args.panels) * width, layout.outputs())};
}

void Widen(ir::DType dtype, const std::byte* from, int64_t count, float* to) {
  if (count == 0) return;
  if (dtype == ir::DType::kFloat32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = dtype == ir::DType::kFloat16 ? ir::HalfToFloat(bits) : ir::BFloat16ToFloat(bits);
  }
}

void WidenSteps(const ir::PanelLayout& layout, const std::byte* panel, int64_t first, int64_t count, float* to) {
  const int64_t units = layout.interleave;
  if (units == 1) return Widen(layout.dtype, panel + layout.OffsetOf(0, first), count * kLanes, to);
  float step[kLanes * 4];
  for (int64_t k = 0; k < count; k += units) {
    Widen(layout.dtype, panel + layout.OffsetOf(0, first + k), kLanes * units, step);
    for (int64_t i = 0; i < std::min(units, count - k); ++i, to += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) to[lane] = step[lane * units + i];
    }
  }
}

std::vector<float> WidenRows(const ir::KernelSpec& spec, const TileArgs& args, int64_t first, int64_t rows) {
  std::vector<float> wide(static_cast<size_t>(rows * spec.depth()));
  float* to = wide.data();
  for (int64_t row = first; row < first + rows; ++row) {
    if (spec.access == ir::Access::kDense) {
      Widen(spec.x, RowOfX(args, row), spec.k, to);
      to += spec.k;
      continue;
    }
    for (int64_t tap = 0; tap < spec.taps; ++tap, to += spec.k) {
      const int64_t offset = args.offsets[row * spec.taps + tap];
      if (offset != kZeroTap) Widen(spec.x, args.x + offset, spec.k, to);
    }
  }
  return wide;
}

}  // namespace clikart::codegen::portable
