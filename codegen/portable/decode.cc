#include "decode.h"

#include <immintrin.h>

#include <cstring>

namespace clikart::codegen::portable {
namespace {

#define CLIKART_AVX2 __attribute__((target("avx2"), always_inline)) inline

// Eight codes of a row, one a lane. Reads exactly their bytes.
CLIKART_AVX2 __m256i LoadCodes(const CodeTable& table, const uint8_t* row, int64_t column) {
  if (table.bits == 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + column));
    return table.is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  }
  int32_t nibbles;
  std::memcpy(&nibbles, row + column / 2, sizeof nibbles);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(nibbles), shifts), _mm256_set1_epi32(15));
}

CLIKART_AVX2 __m256 Decode(const CodeTable& table, __m256i codes, float zero_point) {
  const __m256 values =
      table.is_integer ? _mm256_cvtepi32_ps(codes) : _mm256_i32gather_ps(table.values, codes, sizeof(float));
  return _mm256_sub_ps(values, _mm256_set1_ps(zero_point));
}

CLIKART_AVX2 void Transpose(__m256 (&r)[8]) {
  __m256 pairs[8], quads[8];
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    quads[4 * i] = _mm256_shuffle_ps(pairs[4 * i], pairs[4 * i + 2], 0x44);
    quads[4 * i + 1] = _mm256_shuffle_ps(pairs[4 * i], pairs[4 * i + 2], 0xee);
    quads[4 * i + 2] = _mm256_shuffle_ps(pairs[4 * i + 1], pairs[4 * i + 3], 0x44);
    quads[4 * i + 3] = _mm256_shuffle_ps(pairs[4 * i + 1], pairs[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

}  // namespace

__attribute__((target("avx2"))) int64_t DecodeEightsAvx2(const CodeTable& table, const LaneCodes& lanes, int64_t begin,
                                                         int64_t end, float* to) {
  if (table.bits == 4 && begin % 2 != 0) return begin;
  int64_t column = begin;
  for (; column + 8 <= end; column += 8, to += 8 * kLanes) {
    for (int64_t half = 0; half < kLanes; half += 8) {
      __m256 block[8];
      for (int64_t i = 0; i < 8; ++i) {
        const int64_t lane = half + i;
        block[i] = lane < lanes.count
                       ? Decode(table, LoadCodes(table, lanes.rows[lane], column), lanes.zero_points[lane])
                       : _mm256_setzero_ps();
      }
      Transpose(block);
      for (int64_t i = 0; i < 8; ++i) _mm256_storeu_ps(to + i * kLanes + half, block[i]);
    }
  }
  return column;
}

#undef CLIKART_AVX2

}  // namespace clikart::codegen::portable
