#include "chain.h"

#include <immintrin.h>

#include <cmath>

namespace clikart::codegen::portable {

void ExtendChainsBaseline(const float* x, int64_t x_stride, int64_t rows, const float* w, int64_t steps, float* acc) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < steps; ++k) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        float& sum = acc[row * kLanes + lane];
        sum = std::fma(x[row * x_stride + k], w[k * kLanes + lane], sum);
      }
    }
  }
}

namespace {

// kRows rows at once keep enough independent chains in flight.
template <int kRows>
__attribute__((target("avx2,fma"))) void ExtendRowsFma(const float* x, int64_t x_stride, const float* w, int64_t steps,
                                                       float* acc) {
  __m256 low[kRows], high[kRows];
  for (int row = 0; row < kRows; ++row) {
    low[row] = _mm256_loadu_ps(acc + row * kLanes);
    high[row] = _mm256_loadu_ps(acc + row * kLanes + 8);
  }
  for (int64_t k = 0; k < steps; ++k) {
    const __m256 w_low = _mm256_loadu_ps(w + k * kLanes), w_high = _mm256_loadu_ps(w + k * kLanes + 8);
    for (int row = 0; row < kRows; ++row) {
      const __m256 value = _mm256_broadcast_ss(x + row * x_stride + k);
      low[row] = _mm256_fmadd_ps(value, w_low, low[row]);
      high[row] = _mm256_fmadd_ps(value, w_high, high[row]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    _mm256_storeu_ps(acc + row * kLanes, low[row]);
    _mm256_storeu_ps(acc + row * kLanes + 8, high[row]);
  }
}

}  // namespace

__attribute__((target("avx2,fma"))) void ExtendChainsAvx2(const float* x, int64_t x_stride, int64_t rows,
                                                          const float* w, int64_t steps, float* acc) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) ExtendRowsFma<4>(x + row * x_stride, x_stride, w, steps, acc + row * kLanes);
  for (; row < rows; ++row) ExtendRowsFma<1>(x + row * x_stride, x_stride, w, steps, acc + row * kLanes);
}

void AddScaledBaseline(const float* t, const float* scale, int64_t rows, float* acc) {
  for (int64_t i = 0; i < rows * kLanes; ++i) acc[i] = std::fma(t[i], scale[i % kLanes], acc[i]);
}

__attribute__((target("avx2,fma"))) void AddScaledAvx2(const float* t, const float* scale, int64_t rows, float* acc) {
  for (int64_t i = 0; i < rows * kLanes; i += 8) {
    const __m256 lanes = _mm256_loadu_ps(scale + i % kLanes);
    _mm256_storeu_ps(acc + i, _mm256_fmadd_ps(_mm256_loadu_ps(t + i), lanes, _mm256_loadu_ps(acc + i)));
  }
}

}  // namespace clikart::codegen::portable
