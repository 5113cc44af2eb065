// int8 or uint8 inputs, packed int8 weights: numerics rule 6, QLinear.
#include <algorithm>
#include <cmath>

#include "dot.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// x - zero point, exact: [rows, depth], zeros behind k.
std::vector<int16_t> CenterRows(const RowBlock& block, int64_t rows, int64_t depth) {
  const auto& [spec, args, ops, first, columns] = block;
  std::vector<int16_t> centered(static_cast<size_t>(rows * depth));
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* x = RowOfX(args, first + row);
    int16_t* const to = centered.data() + row * depth;
    for (int64_t i = 0; i < spec.k; ++i) {
      const auto code = static_cast<uint8_t>(x[i]);
      const int32_t value = spec.x == ir::DType::kInt8 ? static_cast<int8_t>(code) : code;
      to[i] = static_cast<int16_t>(value - args.integer->input_zero_point);
    }
  }
  return centered;
}

}  // namespace

void ContractInteger(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::PanelLayout layout = ir::LayoutOf(spec);
  const IntegerQuant& quant = *args.integer;
  const int64_t width = layout.OutputsPerPanel(), depth = layout.Steps() * layout.interleave;
  const std::vector<int16_t> x = CenterRows(block, accumulators.rows(), depth);
  for (int64_t panel = 0; panel * width < columns.count(); ++panel) {
    const int64_t used = std::min(width, columns.count() - panel * width);
    const float* const scales = quant.scales + (args.first_panel + panel) * ir::kPanelLanes;
    for (int64_t row = 0; row < accumulators.rows(); ++row) {
      int64_t sums[ir::kPanelLanes] = {};
      DotPanel(args.weights + panel * layout.PanelBytes(), x.data() + row * depth, layout.Steps(), sums);
      for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
        for (int64_t i = 0; i < used; ++i) {
          const int64_t lane = plane * width + i, column = panel * width + i;
          // Without a bias the product is rounded once too: -0 is what changes nothing.
          const float bias = spec.bias == ir::BiasKind::kNone ? -0.0f : args.bias[columns.begin + column];
          accumulators.Row(plane, row)[column] = std::fma(static_cast<float>(sums[lane]), scales[lane], bias);
        }
      }
    }
  }
}

}  // namespace clikart::codegen::portable
