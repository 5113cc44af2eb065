// int8 or uint8 inputs, int8 weights: numerics rule 6, QLinear.
#include <algorithm>
#include <cmath>

#include "quant_rows.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// Differences of inputs are at most 255 and weights at most 128 in magnitude: this many products fit
// an int32 sum.
constexpr int64_t kInt32Block = 65536;

// x - zero point, exact.
std::vector<int32_t> CenterRow(const ir::KernelSpec& spec, const std::byte* x, int32_t zero_point) {
  std::vector<int32_t> centered(static_cast<size_t>(spec.k));
  for (int64_t i = 0; i < spec.k; ++i) {
    const auto code = static_cast<uint8_t>(x[i]);
    const int32_t value = spec.x == ir::DType::kInt8 ? static_cast<int8_t>(code) : code;
    centered[static_cast<size_t>(i)] = value - zero_point;
  }
  return centered;
}

int64_t Dot(const int32_t* x, const std::byte* w, int64_t k) {
  int64_t total = 0;
  for (int64_t begin = 0; begin < k; begin += kInt32Block) {
    int32_t sum = 0;
    const int64_t end = std::min(begin + kInt32Block, k);
    for (int64_t i = begin; i < end; ++i) sum += x[i] * static_cast<int8_t>(w[i]);
    total += sum;
  }
  return total;
}

}  // namespace

void ContractInteger(const ir::KernelSpec& spec, const TileArgs& args, int64_t first, Columns columns,
                     Accumulators& accumulators) {
  const IntegerQuant& quant = *args.integer;
  for (int64_t row = 0; row < accumulators.rows(); ++row) {
    const std::vector<int32_t> x = CenterRow(spec, RowOfX(args, first + row), quant.input_zero_point);
    for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
      float* out = accumulators.Row(plane, row);
      for (int64_t column = 0; column < columns.count(); ++column) {
        const int64_t weight_row = FirstWeightRow(spec, plane) + columns.begin + column;
        const SegmentRows run = RowsFrom(args.segments, weight_row, 1);
        const auto dot = static_cast<float>(Dot(x.data(), run.segment->codes + run.first * spec.k, spec.k));
        const float scale = quant.input_scale * quant.weight_scale[weight_row];
        // Without a bias the product is rounded once too: -0 is what changes nothing.
        out[column] =
            std::fma(dot, scale, spec.bias == ir::BiasKind::kNone ? -0.0f : args.bias[columns.begin + column]);
      }
    }
  }
}

}  // namespace clikart::codegen::portable
