#include "lane_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "dot.h"

namespace clikart::codegen::portable {
namespace {

std::vector<float> RandomFloats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class ChainTest : public testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    if (!Detect(CpuidRecord::Host(), GetParam()).Includes(TargetOf(GetParam()))) GTEST_SKIP() << "this CPU has less";
  }
};

// Over every remainder of the row blocking.
TEST_P(ChainTest, IsOneFmaChainALane) {
  const LaneOps& ops = LaneOpsFor(GetParam());
  const int64_t steps = 37, stride = 40;
  for (int64_t rows = 0; rows <= kRowBlock; ++rows) {
    const std::vector<float> x = RandomFloats(static_cast<size_t>(rows * stride), 1);
    const std::vector<float> w = RandomFloats(steps * kLanes, 2);
    const std::vector<float> start = RandomFloats(static_cast<size_t>(rows * kLanes), 3);
    std::vector<float> acc = start;
    ops.extend_chains(x.data(), stride, rows, w.data(), steps, acc.data());
    std::vector<float> scaled = start;
    ops.add_scaled(acc.data(), w.data(), rows, scaled.data());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto at = static_cast<size_t>(row * kLanes + lane);
        float sum = start[at];
        for (int64_t k = 0; k < steps; ++k) {
          sum = std::fma(x[static_cast<size_t>(row * stride + k)], w[static_cast<size_t>(k * kLanes + lane)], sum);
        }
        EXPECT_EQ(acc[at], sum);
        EXPECT_EQ(scaled[at], std::fma(sum, w[static_cast<size_t>(lane)], start[at]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ChainTest, testing::Values(IsaLevel::kBaseline, IsaLevel::kAvx2));

TEST(DotTest, IsExactAtTheEndsOfTheRange) {
  for (int64_t n : {0, 1, 7, 8, 9, 65535, 65536, 65537, 200001}) {
    const std::vector<int16_t> a(static_cast<size_t>(n), 255), b(static_cast<size_t>(n), -255);
    EXPECT_EQ(Dot(a.data(), b.data(), n), -65025 * n) << n;
    EXPECT_EQ(Dot(a.data(), a.data(), n), 65025 * n) << n;
  }
  std::vector<int16_t> steps(19);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<int16_t>(i);
  EXPECT_EQ(Dot(steps.data(), steps.data(), 19), 18 * 19 * 37 / 6);
}

}  // namespace
}  // namespace clikart::codegen::portable
