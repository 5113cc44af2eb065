// The fma chains of numerics rule 1 and of one group of rule 3, with the C library's fma and with the
// instruction: both round the exact result once, so the bits are the same.
#pragma once

#include <cstdint>

#include "tile.h"

namespace clikart::codegen::portable {

// For each row r and lane l: acc[r * kLanes + l] = fma(x[r * x_stride + k], w[k * kLanes + l], acc[...]) for k = 0 ..
// steps - 1 in this order. Each output is one chain; several run side by side.
void ExtendChainsBaseline(const float* x, int64_t x_stride, int64_t rows, const float* w, int64_t steps, float* acc);
void ExtendChainsAvx2(const float* x, int64_t x_stride, int64_t rows, const float* w, int64_t steps, float* acc);

// acc[r * kLanes + l] = fma(t[r * kLanes + l], scale[l], acc[...])
void AddScaledBaseline(const float* t, const float* scale, int64_t rows, float* acc);
void AddScaledAvx2(const float* t, const float* scale, int64_t rows, float* acc);

}  // namespace clikart::codegen::portable
