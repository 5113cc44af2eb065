#include "lane_sums.h"

#include <emmintrin.h>

#include <algorithm>

namespace clikart {
namespace {

constexpr int64_t kLanesPerVector = 4;
// A step adds at most 512 to an int32 lane.
constexpr int64_t kStepsPerBlock = int64_t{1} << 21;

// Four lanes of four codes, each as the sum of its codes.
__m128i SumUnits(__m128i units) {
  const __m128i ones = _mm_set1_epi16(1);
  const __m128i even = _mm_srai_epi16(_mm_slli_epi16(units, 8), 8), odd = _mm_srai_epi16(units, 8);
  return _mm_madd_epi16(_mm_add_epi16(even, odd), ones);
}

}  // namespace

void SumLanes(const ir::PanelLayout& layout, const std::byte* panel, int64_t* sums) {
  std::fill_n(sums, ir::kPanelLanes, int64_t{0});
  for (int64_t begin = 0; begin < layout.Steps(); begin += kStepsPerBlock) {
    __m128i block[ir::kPanelLanes / kLanesPerVector] = {};
    const int64_t end = std::min(begin + kStepsPerBlock, layout.Steps());
    for (int64_t step = begin; step < end; ++step) {
      const std::byte* from = panel + step * layout.StepBytes();
      for (__m128i& lanes : block) {
        lanes = _mm_add_epi32(lanes, SumUnits(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
        from += sizeof(__m128i);
      }
    }
    int32_t lanes[ir::kPanelLanes];
    for (int64_t i = 0; i < ir::kPanelLanes; i += kLanesPerVector) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes + i), block[i / kLanesPerVector]);
    }
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) sums[lane] += lanes[lane];
  }
}

}  // namespace clikart
