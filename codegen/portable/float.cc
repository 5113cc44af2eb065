// Float weights in panels: numerics rule 1.
#include <algorithm>
#include <cstring>

#include "lane_ops.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

constexpr int64_t kSteps = 128;  // of a panel that are widened at a time

}  // namespace

void ContractFloat(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::PanelLayout layout = ir::LayoutOf(spec);
  const int64_t rows = accumulators.rows(), depth = spec.depth(), width = layout.OutputsPerPanel();
  const std::vector<float> x = WidenRows(spec, args, first, rows);
  float steps_f32[kSteps * kLanes];
  for (int64_t panel = 0; panel * width < columns.count(); ++panel) {
    float lanes[kRowBlock * kLanes] = {};
    const std::byte* weights = args.weights + panel * layout.PanelBytes();
    for (int64_t k = 0; k < depth; k += kSteps) {
      const int64_t steps = std::min(kSteps, depth - k);
      WidenSteps(layout, weights, k, steps, steps_f32);
      ops.extend_chains(x.data() + k, depth, rows, steps_f32, steps, lanes);
    }
    // A gated panel holds its gates in the first lanes and the ups of the same outputs in the others.
    const int64_t used = std::min(width, columns.count() - panel * width);
    for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(accumulators.Row(plane, row) + panel * width, lanes + row * kLanes + plane * width,
                    static_cast<size_t>(used) * sizeof(float));
      }
    }
  }
}

}  // namespace clikart::codegen::portable
