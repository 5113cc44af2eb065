#include "dot.h"

#include <emmintrin.h>

#include <algorithm>

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

}  // namespace

int64_t Dot(const int16_t* a, const int16_t* b, int64_t n) {
  int64_t total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += DotBlock(a + i, b + i, std::min(kBlock, n - i));
  return total;
}

}  // namespace clikart::codegen::portable
