// Scales and minimums in their storage type, rounded so that they cover what they have to.
#pragma once

#include <cstdint>
#include <optional>

#include "clikart/ir/quant_scheme.h"

namespace clikart {

// The bits of the least scale of `type` that is at least `wanted` (not negative, no NaN); none when even the
// greatest is below. Scales are finite, positive and normal as f32 (2^-126 and up), so that dividing by one and
// multiplying with it are as exact as f32 can be, also for a group of zeros.
std::optional<uint32_t> LeastScale(ir::ScaleType type, double wanted);

// The bits of the greatest finite number of `type` (f32, f16 or bf16) that is at most `wanted`; none when even the
// least is above.
std::optional<uint32_t> GreatestMinimum(ir::ScaleType type, double wanted);

// What a stored scale is as a float.
float ScaleValue(ir::ScaleType type, uint32_t bits);

// The greatest finite scale of `type`.
float GreatestScale(ir::ScaleType type);

}  // namespace clikart
