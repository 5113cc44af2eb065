// Float weights in panels, one channel of x for each output: numerics rule 1 with a tap's depth of one.
#include <algorithm>
#include <cstring>

#include "lane_ops.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// Row `row`'s tap `tap`, or null for a zero tap.
const std::byte* TapOfX(const ir::KernelSpec& spec, const TileArgs& args, int64_t row, int64_t tap) {
  if (spec.access == ir::Access::kDense) return RowOfX(args, row);
  const int64_t offset = args.offsets[row * spec.taps + tap];
  return offset == kZeroTap ? nullptr : args.x + offset;
}

}  // namespace

void ContractDepthwise(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::PanelLayout layout = ir::LayoutOf(spec);
  const int64_t rows = accumulators.rows();
  const auto element = static_cast<int64_t>(ir::SizeOf(spec.x));
  for (int64_t column = 0; column < columns.count(); column += kLanes) {
    const int64_t used = std::min(kLanes, columns.count() - column);
    const std::byte* const weights = args.weights + column / kLanes * layout.PanelBytes();
    float lanes[kRowBlock * kLanes] = {};
    for (int64_t tap = 0; tap < spec.taps; ++tap) {
      float x[kRowBlock * kLanes] = {}, w[kLanes];
      WidenSteps(layout, weights, tap, 1, w);
      for (int64_t row = 0; row < rows; ++row) {
        const std::byte* const from = TapOfX(spec, args, first + row, tap);
        if (from != nullptr) Widen(spec.x, from + (columns.begin + column) * element, used, x + row * kLanes);
      }
      ops.add_scaled(x, w, rows, lanes);
    }
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(accumulators.Row(0, row) + column, lanes + row * kLanes, static_cast<size_t>(used) * sizeof(float));
    }
  }
}

}  // namespace clikart::codegen::portable
