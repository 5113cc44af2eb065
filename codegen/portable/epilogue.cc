// Bias, activation, one rounding.
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "tile.h"

namespace clikart::codegen::portable {
namespace {

void StoreFloats(ir::DType dtype, const float* values, int64_t count, std::byte* to) {
  if (dtype == ir::DType::kFloat32) {
    std::memcpy(to, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == ir::DType::kFloat16 ? ir::FloatToHalf(values[i]) : ir::FloatToBFloat16(values[i]);
    std::memcpy(to + 2 * i, &bits, sizeof bits);
  }
}

// round-to-even(value / scale) + zero point, saturated; NaN gives the lowest code.
void StoreCodes(ir::DType dtype, const IntegerQuant& quant, const float* values, int64_t count, std::byte* to) {
  const int32_t lowest = dtype == ir::DType::kInt8 ? -128 : 0;
  const auto low = static_cast<float>(lowest - quant.output_zero_point);
  const auto high = static_cast<float>(lowest + 255 - quant.output_zero_point);
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = values[i] / quant.output_scale;
    const float above = scaled > low ? scaled : low;
    const float bounded = above < high ? above : high;
    const int32_t code = _mm_cvtss_si32(_mm_set_ss(bounded)) + quant.output_zero_point;
    to[i] = static_cast<std::byte>(code & 0xff);
  }
}

}  // namespace

void StoreWithEpilogue(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::Program& program = ir::ProgramOf(spec.activation);
  const bool add_bias = spec.bias == ir::BiasKind::kFloat32 && spec.contraction != ir::Contraction::kInteger;
  const auto element = static_cast<int64_t>(ir::SizeOf(spec.y));
  for (int64_t row = 0; row < accumulators.rows(); ++row) {
    float* values = accumulators.Row(0, row);
    if (add_bias) {
      for (int64_t i = 0; i < columns.count(); ++i) values[i] += args.bias[columns.begin + i];
    }
    if (!program.IsIdentity()) {
      const float* inputs[] = {values, spec.gated() ? accumulators.Row(1, row) : nullptr};
      ir::EvaluateLanes(program, std::span(inputs, static_cast<size_t>(program.inputs)), columns.count(), values);
    }
    std::byte* to = args.y + (first + row) * args.y_stride + columns.begin * element;
    if (spec.requantize) {
      StoreCodes(spec.y, *args.integer, values, columns.count(), to);
    } else {
      StoreFloats(spec.y, values, columns.count(), to);
    }
  }
}

}  // namespace clikart::codegen::portable
