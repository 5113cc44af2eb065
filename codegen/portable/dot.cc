#include "dot.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>

namespace clikart::codegen::portable {
namespace {

// Four int32 sums take a product pair of at most 2 * 255 * 255 every eight elements: 2^31 is reached after
// 132,000 elements, so they are emptied into int64 well before.
constexpr int64_t kBlock = 65536;

int64_t DotBlock(const int16_t* a, const int16_t* b, int64_t n) {
  __m128i sums = _mm_setzero_si128();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i pairs = _mm_madd_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)),
                                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    sums = _mm_add_epi32(sums, pairs);
  }
  int32_t lanes[4];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), sums);
  int64_t total = int64_t{lanes[0]} + lanes[1] + lanes[2] + lanes[3];
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// Sums of two lanes in each: a step adds two pairs of products to a lane, of at most 383 * 128 each.
void DotPanelBlock(const std::byte* panel, const int16_t* x, int64_t steps, int64_t* sums) {
  constexpr int kVectors = 4;  // of four lanes
  __m128i pairs[2 * kVectors] = {};
  for (int64_t step = 0; step < steps; ++step, x += 4) {
    const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x));
    const __m128i twice = _mm_unpacklo_epi64(four, four);
    for (int i = 0; i < kVectors; ++i, panel += sizeof(__m128i)) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel));
      const __m128i signs = _mm_cmpgt_epi8(_mm_setzero_si128(), codes);
      pairs[2 * i] = _mm_add_epi32(pairs[2 * i], _mm_madd_epi16(_mm_unpacklo_epi8(codes, signs), twice));
      pairs[2 * i + 1] = _mm_add_epi32(pairs[2 * i + 1], _mm_madd_epi16(_mm_unpackhi_epi8(codes, signs), twice));
    }
  }
  for (const __m128i& two : pairs) {
    int32_t halves[4];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves), two);
    *sums++ += int64_t{halves[0]} + halves[1];
    *sums++ += int64_t{halves[2]} + halves[3];
  }
}

}  // namespace

void DotPanel(const std::byte* panel, const int16_t* x, int64_t steps, int64_t* sums) {
  constexpr int64_t kSteps = kBlock / 4;
  for (int64_t i = 0; i < steps; i += kSteps) {
    DotPanelBlock(panel + i * 64, x + 4 * i, std::min(kSteps, steps - i), sums);
  }
}

int64_t Dot(const int16_t* a, const int16_t* b, int64_t n) {
  int64_t total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += DotBlock(a + i, b + i, std::min(kBlock, n - i));
  return total;
}

}  // namespace clikart::codegen::portable
