#include "quantize_rows.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "layer_testing.h"
#include "parallel.h"

namespace clikart {
namespace {

using testing::Value;

constexpr int64_t kRows = 16;  // a multiple of every kernel's

struct Rows {
  std::vector<uint8_t> codes;
  std::vector<GroupCodes> groups;
};

Rows QuantizedBy(const RowKernel& kernel, const RowRules& rules, const std::vector<float>& weights) {
  Rows rows = {std::vector<uint8_t>(weights.size()),
               std::vector<GroupCodes>(static_cast<size_t>(kRows * rules.groups))};
  for (int64_t first = 0; first < kRows; first += kernel.rows) {
    kernel.quantize(rules, {.weights = weights.data() + first * rules.depth,
                            .codes = rows.codes.data() + first * rules.depth,
                            .groups = rows.groups.data() + first * rules.groups,
                            .scratch = ThreadScratch(static_cast<size_t>(rules.ScratchBytes(kernel.rows)))});
  }
  return rows;
}

// Rows of different spread, some of which f16 scales do not reach.
std::vector<float> Weights(int64_t depth) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> weights;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t k = 0; k < depth; ++k) {
      weights.push_back(normal(generator) * std::pow(10.0f, static_cast<float>(row % 11) - 4) + (row % 3 == 0 ? 2 : 0));
    }
  }
  return weights;
}

TEST(RowKernels, AllGiveTheSameBits) {
  constexpr int64_t kDepth = 50;
  const std::vector<float> weights = Weights(kDepth);
  std::vector<float> importance(kDepth);
  for (size_t k = 0; k < importance.size(); ++k) importance[k] = static_cast<float>(k % 7);
  const std::span<const RowKernel> kernels = RowKernels();
  bool unreached = false;
  for (const char* text : {"int4_g16", "int8", "int8_g7_asym", "int4_g16_min", "int2_min_bf16", "nf4_g16",
                           "fp4_g16_f32", "mxfp4", "nvfp4", "fp8_e4m3", "fp8_e5m2_g32_e8m0"}) {
    for (const ScaleSearch search : {ScaleSearch::kMinMax, ScaleSearch::kMse}) {
      for (const std::span<const float> counts : {std::span<const float>(), std::span<const float>(importance)}) {
        const QuantScheme scheme = Value(QuantScheme::Parse(text));
        const float global_scale = scheme.HasGlobalScale() ? GlobalScaleFor(scheme, 1e7f) : 1.0f;
        const RowRules rules = RowRulesOf(scheme, search, kDepth, counts, global_scale);
        const Rows wanted = QuantizedBy(kernels[0], rules, weights);
        for (const RowKernel& kernel : kernels.subspan(1)) {
          const Rows found = QuantizedBy(kernel, rules, weights);
          for (size_t i = 0; i < wanted.groups.size(); ++i) {
            const GroupCodes &a = found.groups[i], &b = wanted.groups[i];
            ASSERT_EQ(a.reached, b.reached) << text << " " << kernel.name;
            unreached = unreached || !b.reached;
            if (!b.reached) continue;
            ASSERT_EQ(a.scale, b.scale) << text << " " << kernel.name;
            ASSERT_EQ(a.minimum, b.minimum) << text << " " << kernel.name;
            ASSERT_EQ(a.zero, b.zero) << text << " " << kernel.name;
            const auto row = static_cast<int64_t>(i) / rules.groups, group = static_cast<int64_t>(i) % rules.groups;
            for (int64_t k = group * rules.group_size; k < std::min((group + 1) * rules.group_size, kDepth); ++k) {
              const auto at = static_cast<size_t>(row * kDepth + k);
              ASSERT_EQ(found.codes[at], wanted.codes[at]) << text << " " << kernel.name;
            }
          }
        }
      }
    }
  }
  EXPECT_TRUE(unreached);
}

TEST(RowKernels, EndWithTheWidest) {
  const std::span<const RowKernel> kernels = RowKernels();
  ASSERT_FALSE(kernels.empty());
  EXPECT_EQ(std::string(kernels[0].name), "baseline");
  for (size_t i = 1; i < kernels.size(); ++i) EXPECT_GT(kernels[i].rows, kernels[i - 1].rows);
  for (const RowKernel& kernel : kernels) EXPECT_EQ(kRows % kernel.rows, 0);
}

TEST(GlobalScaleFor, GivesThePeakTheGreatestScale) {
  const QuantScheme nvfp4 = Value(QuantScheme::Parse("nvfp4"));
  EXPECT_EQ(GlobalScaleFor(nvfp4, 6 * 448 * 0.25f), 0.25f);
  EXPECT_GE(GlobalScaleFor(nvfp4, 1.0f) * 448 * 6, 1.0f);
  EXPECT_LE(GlobalScaleFor(nvfp4, 1.0f) * 448 * 6, 1.000001f);
  EXPECT_EQ(GlobalScaleFor(nvfp4, 0), 0x1p-117f);
}

}  // namespace
}  // namespace clikart
