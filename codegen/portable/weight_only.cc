// Quantized weights, float inputs: numerics rule 3.
#include <algorithm>
#include <cmath>

#include "lane_ops.h"
#include "packed_codes.h"
#include "store_lanes.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

constexpr int64_t kSteps = 128;  // of a panel that are decoded at a time

// u = u + x of rule 3, for `rows` rows of `k` values: a sum for each, starting from +0.
void SumInputs(const float* x, int64_t k, int64_t rows, int64_t steps, float* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0.0f;
    for (int64_t i = 0; i < steps; ++i) sum += x[row * k + i];
    sums[row] = sum;
  }
}

// acc[row, lane] of one panel, from +0.
void ContractPanel(const RowBlock& block, const ir::CodeLayout& layout, int64_t panel, const float* x, int64_t rows,
                   float* acc) {
  const std::byte* const at = block.args.weights + panel * layout.PanelBytes();
  float decoded[kSteps * kLanes];
  for (int64_t group = 0; group < layout.Groups(); ++group) {
    const PackedGroup packed(layout, *block.args.codes, block.args.first_panel + panel, at, group);
    const float* const own = x + layout.GroupBegin(group);
    float t[kRowBlock * kLanes] = {};
    for (int64_t step = 0; step < packed.steps(); step += kSteps) {
      const int64_t count = std::min(kSteps, packed.steps() - step);
      packed.Decode(step, count, decoded);
      block.ops.extend_chains(own + step, layout.depth(), rows, decoded, count, t);
    }
    block.ops.add_scaled(t, packed.scales(), rows, acc);
    if (!layout.scheme.minimum) continue;
    float sums[kRowBlock];
    SumInputs(own, layout.depth(), rows, packed.steps(), sums);
    for (int64_t row = 0; row < rows; ++row) std::fill_n(t + row * kLanes, kLanes, sums[row]);
    block.ops.add_scaled(t, packed.minimums(), rows, acc);
  }
}

}  // namespace

void ContractWeightOnly(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec, args.codes->group_begins);
  const int64_t rows = accumulators.rows(), width = layout.panels.OutputsPerPanel();
  const std::vector<float> x = WidenRows(spec, args, first, rows);
  for (const OrderedRows& order : OrdersOf(spec, *args.codes)) {
    const std::vector<float> ordered = Reorder(x, rows, spec.k, order.columns);
    for (int64_t panel = 0; panel * width < columns.count(); ++panel) {
      const PanelLanes lanes(layout.panels, args.first_panel + panel, order.begin, order.end);
      if (lanes.empty()) continue;
      float acc[kRowBlock * kLanes] = {};
      ContractPanel(block, layout, panel, ordered.data(), rows, acc);
      StoreLanes(lanes, acc, panel * width, accumulators);
    }
  }
}

}  // namespace clikart::codegen::portable
