#include "integer_sums.h"

#include <algorithm>

namespace clikart::codegen {
namespace {

using ir::kPanelLanes;

// What a column's sum is taken times and added.
int64_t Factor(const ir::KernelSpec& spec, const IntegerQuant& quant) {
  return -int64_t{quant.input_zero_point} - (spec.x == ir::DType::kInt8 ? 128 : 0);
}

}  // namespace

Requantization RequantizationOf(const ir::KernelSpec& spec, const IntegerQuant& quant) {
  const int32_t lowest = (spec.y == ir::DType::kInt8 ? -128 : 0) - quant.output_zero_point;
  return {.scale = quant.output_scale,
          .low = static_cast<float>(lowest),
          .high = static_cast<float>(lowest + 255),
          .zero_point = quant.output_zero_point};
}

PanelTerms TermsOf(const ir::KernelSpec& spec, const IntegerQuant& quant, int64_t panel, const float* bias) {
  PanelTerms terms{};
  const int64_t factor = Factor(spec, quant);
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    // Modulo 2^32, as the sums are.
    terms.compensation[lane] = static_cast<int32_t>(factor * quant.column_sums[panel * kPanelLanes + lane]);
  }
  std::copy_n(quant.scales + panel * kPanelLanes, kPanelLanes, terms.scale);
  if (bias != nullptr) std::copy_n(bias, kPanelLanes, terms.bias);
  return terms;
}

void AddBlock(const int32_t* block, int64_t count, int64_t* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] += block[i];
}

void RoundSums(const ir::KernelSpec& spec, const IntegerQuant& quant, int64_t panel, const int64_t* sums, int64_t rows,
               float* to) {
  const int64_t factor = Factor(spec, quant);
  const int64_t* const column_sums = quant.column_sums + panel * kPanelLanes;
  for (int64_t row = 0; row < rows; ++row, sums += kPanelLanes, to += kPanelLanes) {
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      to[lane] = static_cast<float>(sums[lane] + factor * column_sums[lane]);
    }
  }
}

}  // namespace clikart::codegen
