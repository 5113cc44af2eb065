// int8 or uint8 inputs, int8 weights: numerics rule 6, QLinear.
#include <cmath>

#include "dot.h"
#include "quant_rows.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// x - zero point, exact: [rows, k].
std::vector<int16_t> CenterRows(const ir::KernelSpec& spec, const TileArgs& args, int64_t first, int64_t rows) {
  std::vector<int16_t> centered;
  centered.reserve(static_cast<size_t>(rows * spec.k));
  for (int64_t row = first; row < first + rows; ++row) {
    const std::byte* x = RowOfX(args, row);
    for (int64_t i = 0; i < spec.k; ++i) {
      const auto code = static_cast<uint8_t>(x[i]);
      const int32_t value = spec.x == ir::DType::kInt8 ? static_cast<int8_t>(code) : code;
      centered.push_back(static_cast<int16_t>(value - args.integer->input_zero_point));
    }
  }
  return centered;
}

}  // namespace

void ContractInteger(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const IntegerQuant& quant = *args.integer;
  const std::vector<int16_t> x = CenterRows(spec, args, first, accumulators.rows());
  std::vector<int16_t> weights(static_cast<size_t>(spec.k));
  for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
    for (int64_t column = 0; column < columns.count(); ++column) {
      const int64_t weight_row = FirstWeightRow(spec, plane) + columns.begin + column;
      const SegmentRows run = RowsFrom(args.segments, weight_row, 1);
      const std::byte* codes = run.segment->codes + run.first * spec.k;
      for (int64_t i = 0; i < spec.k; ++i) weights[static_cast<size_t>(i)] = static_cast<int8_t>(codes[i]);
      const float scale = quant.input_scale * quant.weight_scale[weight_row];
      // Without a bias the product is rounded once too: -0 is what changes nothing.
      const float bias = spec.bias == ir::BiasKind::kNone ? -0.0f : args.bias[columns.begin + column];
      for (int64_t row = 0; row < accumulators.rows(); ++row) {
        const int64_t dot = Dot(x.data() + row * spec.k, weights.data(), spec.k);
        accumulators.Row(plane, row)[column] = std::fma(static_cast<float>(dot), scale, bias);
      }
    }
  }
}

}  // namespace clikart::codegen::portable
