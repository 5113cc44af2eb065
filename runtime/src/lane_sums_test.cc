#include "lane_sums.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace clikart {
namespace {

TEST(LaneSumsTest, AreThoseOfTheCodes) {
  std::mt19937 random(3);
  for (const int64_t k : {0, 1, 3, 4, 5, 127, 1000}) {
    const ir::PanelLayout layout{.n = 16, .depth = k, .dtype = ir::DType::kInt8, .interleave = 4};
    std::vector<std::byte> panel(static_cast<size_t>(layout.PanelBytes()));
    std::vector<int64_t> wanted(ir::kPanelLanes, 0), sums(ir::kPanelLanes, -1);
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      for (int64_t i = 0; i < k; ++i) {
        const auto code = static_cast<int8_t>(random());
        panel[static_cast<size_t>(layout.OffsetOf(lane, i))] = static_cast<std::byte>(code);
        wanted[static_cast<size_t>(lane)] += code;
      }
    }
    SumLanes(layout, panel.data(), sums.data());
    EXPECT_EQ(sums, wanted) << k;
  }
}

TEST(LaneSumsTest, BeyondInt32) {
  const int64_t k = 20'000'000;
  const ir::PanelLayout layout{.n = 1, .depth = k, .dtype = ir::DType::kInt8, .interleave = 4};
  const std::vector<std::byte> panel(static_cast<size_t>(layout.PanelBytes()), std::byte{0x80});
  std::vector<int64_t> sums(ir::kPanelLanes);
  SumLanes(layout, panel.data(), sums.data());
  EXPECT_EQ(sums[0], -128 * k);
}

}  // namespace
}  // namespace clikart
