// What integer contractions need beside the panels: terms of the epilogue, and sums deeper than int32 holds.
//
// Kernels multiply unsigned codes of x (int8 ones are moved up by 128) by weight codes and add modulo 2^32. What
// is missing is the weight column's sum times a factor that holds the zero point. Up to kDeepestInt32 the answer
// fits int32, so that adding this modulo 2^32 is exact; beyond, the sums of blocks that do fit go on in int64.
// Any emitter whose entries do the same, tiles included, shares this and the epilogue.
#pragma once

#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {

// |x - zero point| is up to 383, as zero points range over both code types; a weight up to 128.
inline constexpr int64_t kDeepestInt32 = INT32_MAX / (383 * 128);
// So many products of unsigned codes and weights stay in int32.
inline constexpr int64_t kInt32Block = 65'536;
static_assert(kInt32Block * 255 * 128 <= INT32_MAX);

inline bool NeedsInt64(const ir::KernelSpec& spec) {
  return spec.contraction == ir::Contraction::kInteger && spec.depth() > kDeepestInt32;
}

// One panel's lanes, for the epilogue of an integer contraction: fma(float(sum + compensation), scale, bias).
struct PanelTerms {
  int32_t compensation[ir::kPanelLanes];
  float scale[ir::kPanelLanes];
  float bias[ir::kPanelLanes];
};

// The output's quantization: round-to-even(bounded y / scale) + zero point, where the bounds saturate.
struct Requantization {
  float scale = 1.0f;
  float low = 0.0f, high = 0.0f;
  int32_t zero_point = 0;
};
Requantization RequantizationOf(const ir::KernelSpec& spec, const IntegerQuant& quant);

// Of panel `panel` of the whole output. `bias` is that of the panel's first column, or null.
PanelTerms TermsOf(const ir::KernelSpec& spec, const IntegerQuant& quant, int64_t panel, const float* bias);

// sums += block
void AddBlock(const int32_t* block, int64_t count, int64_t* sums);
// Rows of panel `panel` whose sums are complete, as float: rounded once.
void RoundSums(const ir::KernelSpec& spec, const IntegerQuant& quant, int64_t panel, const int64_t* sums, int64_t rows,
               float* to);

}  // namespace clikart::codegen
