#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "../src/quant_testing.h"
#include "clikart/ir/code_layout.h"
#include "portable_emitter.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;
using ir::DType;
using ::testing::ElementsAre;

ir::KernelSpec SchemeSpec(const std::string& scheme, int64_t n, int64_t k) {
  return codegen::SchemeSpec(Contraction::kWeightOnly, scheme, n, k);
}

// Bits, with all NaNs equal.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  return bits;
}

void ExpectWordByWord(const QuantProblem& problem) {
  const std::vector<uint32_t> wanted = Bits(WordByWord(problem));
  for (const EmittedKernel& kernel : RunnableKernels(PortableEmitter(), problem.spec)) {
    for (auto edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
      ASSERT_EQ(Bits(RunQuant(problem, {.kernel = &kernel, .edge = edge})), wanted) << problem.spec.ToString();
      ASSERT_EQ(Bits(RunQuant(problem, {.kernel = &kernel, .edge = edge, .tile_rows = 2, .tile_panels = 1})), wanted)
          << "in small tiles: " << problem.spec.ToString();
    }
  }
}

// x holds the unit vectors: y[k, n] is the weight itself.
QuantProblem OneHot(const ir::KernelSpec& spec, QuantPart part) {
  QuantProblem problem;
  problem.spec = spec;
  problem.rows = spec.k;
  problem.x.assign(static_cast<size_t>(spec.k * spec.k), 0.0f);
  for (int64_t k = 0; k < spec.k; ++k) problem.x[static_cast<size_t>(k * spec.k + k)] = 1.0f;
  problem.parts.push_back(std::move(part));
  return problem;
}

TEST(PortableWeightOnlyTest, C025_EverySchemeFollowsRule3AndStaysInItsBuffers) {
  uint64_t seed = 0;
  for (const char* scheme : kWeightOnlySchemes) {
    for (int64_t k : {0, 1, 3, 5, 9, 17, 31, 40, 150}) {
      for (DType x : {DType::kFloat32, DType::kBFloat16}) {
        ir::KernelSpec spec = SchemeSpec(scheme, 22, k);
        spec.x = spec.y = x;
        spec.bias = ir::BiasKind::kFloat32;
        ExpectWordByWord(RandomQuantProblem(spec, 5, {3, 18, 1}, ++seed));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PortableWeightOnlyTest, WithinTheBoundOfTheDoubleReference) {
  for (const char* scheme : kWeightOnlySchemes) {
    const ir::KernelSpec spec = SchemeSpec(scheme, 19, 144);
    const QuantProblem problem = RandomQuantProblem(spec, 3, {19}, 7);
    const std::vector<float> y = RunQuant(problem);
    const DoubleResult exact = InDouble(problem);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_LE(std::fabs(y[i] - exact.y[i]), (144 + 16) * 0x1p-24 * exact.magnitude[i] + 1e-30) << scheme;
    }
  }
}

TEST(PortableWeightOnlyTest, ActOrderTakesGroupsThenColumnsAscending) {
  uint64_t seed = 100;
  for (const char* scheme : {"int4_g8_asym", "int8_g16", "int4_g3"}) {
    for (int64_t k : {1, 17, 40, 300}) {
      ir::KernelSpec spec = SchemeSpec(scheme, 21, k);
      for (const ir::InputOrder order : {ir::InputOrder::kSorted, ir::InputOrder::kUneven}) {
        spec.order = order;
        ExpectWordByWord(RandomQuantProblem(spec, 4, {9, 12}, ++seed));
        ExpectWordByWord(RandomQuantProblem(spec, 4, {3, 17, 1}, ++seed));
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PortableWeightOnlyTest, GatedSegmentsOfAnySize) {
  uint64_t seed = 200;
  for (ir::Activation activation : {ir::Activation::kSwiglu, ir::Activation::kSitu}) {
    ir::KernelSpec spec = SchemeSpec("int4_g16_asym", 42, 33);
    spec.activation = activation;
    ExpectWordByWord(RandomQuantProblem(spec, 3, {21, 21}, ++seed));
    ExpectWordByWord(RandomQuantProblem(spec, 3, {5, 30, 7}, ++seed));
  }
}

TEST(PortableWeightOnlyTest, RowsOfManyBlocksAreThoseOfOne) {
  const QuantProblem problem = RandomQuantProblem(SchemeSpec("int4_g16_asym", 40, 50), 70, {40}, 3);
  const std::vector<float> all = RunQuant(problem);
  for (int64_t row : {0, 15, 16, 31, 69}) {
    QuantProblem one = problem;
    one.rows = 1;
    one.x.assign(problem.x.begin() + row * 50, problem.x.begin() + (row + 1) * 50);
    EXPECT_EQ(Bits(RunQuant(one)), Bits({all.begin() + row * 40, all.begin() + (row + 1) * 40})) << row;
  }
}

TEST(PortableWeightOnlyTest, C036_NibblesLowFirst) {
  for (int64_t k : {16, 17}) {
    const ir::KernelSpec spec = SchemeSpec("int4_f32", 1, k);
    QuantPart part;
    part.rows = 1;
    for (int64_t i = 0; i < k; ++i) part.codes.push_back(static_cast<uint8_t>(i % 16));
    part.scales = {std::bit_cast<uint32_t>(1.0f)};
    const std::vector<float> y = RunQuant(OneHot(spec, part));
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], static_cast<float>(i % 16 - 8));
  }
}

TEST(PortableWeightOnlyTest, C027_RaggedLastGroup) {
  for (const auto& [k, g] :
       std::vector<std::pair<int64_t, int64_t>>{{40, 32}, {33, 32}, {65, 32}, {144, 48}, {80, 64}}) {
    const ir::KernelSpec spec = SchemeSpec("int4_g" + std::to_string(g) + "_f32", 3, k);
    const int64_t groups = (k + g - 1) / g;
    QuantPart part;
    part.rows = 3;
    for (int64_t i = 0; i < 3 * k; ++i) part.codes.push_back(static_cast<uint8_t>((i * 7 + i / k) % 16));
    for (int64_t i = 0; i < 3 * groups; ++i)
      part.scales.push_back(std::bit_cast<uint32_t>(static_cast<float>(1 + 9 * i)));
    const std::vector<float> y = RunQuant(OneHot(spec, part));
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t n = 0; n < 3; ++n) {
        const int64_t group = n * groups + i / g;
        const auto scale = static_cast<float>(1 + 9 * group);
        EXPECT_EQ(y[static_cast<size_t>(i * 3 + n)],
                  scale * static_cast<float>(part.codes[static_cast<size_t>(n * k + i)] - 8));
      }
    }
  }
}

TEST(PortableWeightOnlyTest, C037_GroupIndexChoosesTheScale) {
  ir::KernelSpec spec = SchemeSpec("int8_g2_f32", 1, 8);
  spec.order = ir::InputOrder::kSorted;
  QuantPart part;
  part.rows = 1;
  part.codes.assign(8, 1);
  part.g_idx = {3, 0, 1, 2, 0, 3, 2, 1};
  for (float scale : {1.0f, 10.0f, 100.0f, 1000.0f}) part.scales.push_back(std::bit_cast<uint32_t>(scale));
  EXPECT_THAT(RunQuant(OneHot(spec, part)), ElementsAre(1000, 1, 10, 100, 1, 1000, 100, 10));
}

TEST(PortableWeightOnlyTest, C031_ZeroPointsAtTheEnds) {
  for (const auto& [scheme, top] : {std::pair<const char*, int>{"int4_asym_f32", 15}, {"int8_asym_f32", 255}}) {
    const ir::KernelSpec spec = SchemeSpec(scheme, 3, 2);
    QuantPart part;
    part.rows = 3;
    const auto high = static_cast<uint8_t>(top);
    part.codes = {0, high, 0, high, 0, high};
    part.zero_points = {0, 1, high};
    part.scales.assign(3, std::bit_cast<uint32_t>(0.5f));
    const auto t = static_cast<float>(top);
    EXPECT_THAT(RunQuant(OneHot(spec, part)), ElementsAre(0, -0.5f, -t / 2, t / 2, (t - 1) / 2, 0));
  }
}

TEST(PortableWeightOnlyTest, C032_UnusualScalesStayInTheirFeature) {
  ir::KernelSpec spec = SchemeSpec("int4_g4_asym_f32", 6, 8);
  QuantProblem problem = RandomQuantProblem(spec, 1, {6}, 5);
  problem.x = {1e30f, -1e30f, 1e30f, 3e29f, 1, 2, 3, 4};
  const float scales[] = {0.0f, 1e-40f, -2.0f, INFINITY, NAN, 1.0f};
  for (size_t n = 0; n < 6; ++n) {
    problem.parts[0].scales[2 * n] = std::bit_cast<uint32_t>(scales[n]);
    problem.parts[0].scales[2 * n + 1] = std::bit_cast<uint32_t>(1.0f);
    for (size_t k = 0; k < 4; ++k) problem.parts[0].codes[8 * n + k] = static_cast<uint8_t>(k);
    for (size_t k = 4; k < 8; ++k) problem.parts[0].codes[8 * n + k] = 3;
    problem.parts[0].zero_points[2 * n] = problem.parts[0].zero_points[2 * n + 1] = 1;
  }
  const std::vector<float> y = RunQuant(problem);
  EXPECT_EQ(y[0], 20.0f);
  EXPECT_TRUE(std::isfinite(y[1]));
  EXPECT_LT(y[2], 0.0f);
  EXPECT_TRUE(std::isinf(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(std::isfinite(y[5]));
  ExpectWordByWord(problem);
}

TEST(PortableWeightOnlyTest, C039_LargeSumsDoNotOverflow) {
  const int64_t k = 256;
  QuantProblem problem = RandomQuantProblem(SchemeSpec("int4_g128_asym_f32", 1, k), 1, {1}, 5);
  problem.x.assign(static_cast<size_t>(k), 1000.0f);
  problem.parts[0].codes.assign(static_cast<size_t>(k), 9);
  problem.parts[0].zero_points.assign(2, 8);
  problem.parts[0].scales.assign(2, std::bit_cast<uint32_t>(1e-3f));
  EXPECT_FLOAT_EQ(RunQuant(problem)[0], static_cast<float>(k));
}

TEST(PortableWeightOnlyTest, NvFp4MultipliesTheGlobalScaleIntoTheGroups) {
  QuantPart part;
  part.rows = 1;
  part.codes = {7, 15, 1, 9};
  part.scales = {ScaleBits(ir::ScaleType::kE4m3, 448.0f)};
  part.global_scale = 0.1f;
  const float scale = 448.0f * 0.1f;
  EXPECT_THAT(RunQuant(OneHot(SchemeSpec("nvfp4", 1, 4), part)),
              ElementsAre(6 * scale, -6 * scale, 0.5f * scale, -0.5f * scale));
}

ir::KernelSpec RowInt8Spec(const std::string& scheme, int64_t n, int64_t k) {
  return codegen::SchemeSpec(Contraction::kRowInt8, scheme, n, k);
}

TEST(PortableRowInt8Test, FollowsRule6) {
  uint64_t seed = 300;
  for (const char* scheme :
       {"int8", "int8_g32", "int8_g5_asym", "int4", "int4_g16_asym_f32", "int8_asym_e8m0", "int4_g16_min", "int2_g8"}) {
    for (int64_t k : {0, 1, 5, 17, 40, 150}) {
      ir::KernelSpec spec = RowInt8Spec(scheme, 22, k);
      spec.bias = ir::BiasKind::kFloat32;
      spec.activation = ir::Activation::kGelu;
      ExpectWordByWord(RandomQuantProblem(spec, 5, {3, 18, 1}, ++seed));
      if (k > 1) spec.order = ir::InputOrder::kSorted;
      ExpectWordByWord(RandomQuantProblem(spec, 3, {3, 18, 1}, ++seed));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PortableRowInt8Test, C033_RowsOfZerosTinyValuesAndInfinities) {
  const int64_t k = 8;
  ir::KernelSpec spec = RowInt8Spec("int8_f32", 3, k);
  spec.bias = ir::BiasKind::kFloat32;
  QuantProblem problem = RandomQuantProblem(spec, 8, {3}, 9);
  for (int64_t i = 0; i < k; ++i) {
    const auto at = static_cast<size_t>(i);
    problem.x[at] = 0.0f;
    problem.x[at + 8] = -0.0f;
    problem.x[at + 16] = 1e-38f;
    problem.x[at + 24] = i == 3 ? 1e-44f : 0.0f;
    problem.x[at + 56] = i == 3 ? 2.5e-43f : 1.4e-45f;  // the scale is subnormal, the quotients beyond 127
  }
  problem.x[32 + 2] = INFINITY;
  problem.x[40 + 5] = NAN;
  const std::vector<float> y = RunQuant(problem);
  for (size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(y[n], problem.bias[n]);
    EXPECT_EQ(y[3 + n], problem.bias[n]);
    EXPECT_TRUE(std::isfinite(y[6 + n]));
    EXPECT_TRUE(std::isfinite(y[9 + n]));
    EXPECT_TRUE(std::isnan(y[12 + n]));
    EXPECT_TRUE(std::isnan(y[15 + n]));
    EXPECT_TRUE(std::isfinite(y[21 + n]));
  }
  QuantProblem alone = problem;
  alone.rows = 1;
  alone.x.assign(problem.x.begin() + 48, problem.x.begin() + 56);
  EXPECT_EQ(Bits(RunQuant(alone)), Bits({y.begin() + 18, y.begin() + 21}));
  ExpectWordByWord(problem);
}

TEST(PortableRowInt8Test, C034_FullRangeCodesDoNotSaturate) {
  for (uint8_t code : {uint8_t{127}, uint8_t{129}}) {  // 127 and -127
    QuantProblem problem = RandomQuantProblem(RowInt8Spec("int8_f32", 1, 64), 1, {1}, 1);
    problem.x.assign(64, 1.0f);
    problem.parts[0].codes.assign(64, code);
    problem.parts[0].scales = {std::bit_cast<uint32_t>(1.0f / 127.0f)};
    EXPECT_NEAR(RunQuant(problem)[0], code == 127 ? 64.0f : -64.0f, 1e-4);
  }
}

TEST(PortableRowInt8Test, C039_SumsBeyond32Bits) {
  const int64_t k = 70000;
  QuantProblem problem = RandomQuantProblem(RowInt8Spec("int8_asym_f32", 1, k), 1, {1}, 1);
  problem.x.assign(static_cast<size_t>(k), 2.0f);
  problem.parts[0].codes.assign(static_cast<size_t>(k), 255);
  problem.parts[0].zero_points = {0};
  problem.parts[0].scales = {std::bit_cast<uint32_t>(1.0f)};
  EXPECT_FLOAT_EQ(RunQuant(problem)[0], 2.0f * 255 * static_cast<float>(k));
}

TEST(PortableIntegerTest, FollowsRule6AndStaysInItsBuffers) {
  uint64_t seed = 400;
  for (DType x : {DType::kInt8, DType::kUInt8}) {
    for (bool requantize : {false, true}) {
      for (int64_t k : {0, 1, 3, 17, 31, 100}) {
        ir::KernelSpec spec = IntegerSpec(x, 19, k);
        spec.requantize = requantize;
        if (requantize) spec.y = x;
        ExpectWordByWord(RandomQuantProblem(spec, 5, {19}, ++seed));
        spec.bias = ir::BiasKind::kFloat32;
        spec.activation = ir::Activation::kSilu;
        ExpectWordByWord(RandomQuantProblem(spec, 5, {19}, ++seed));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PortableIntegerTest, DeepSumsAreExact) {
  const int64_t k = 140000;
  QuantProblem problem = RandomQuantProblem(IntegerSpec(DType::kUInt8, 1, k), 1, {1}, 1);
  problem.x.assign(static_cast<size_t>(k), 255.0f);
  problem.parts[0].codes.assign(static_cast<size_t>(k), 0x80);  // -128
  problem.input_scale = 1.0f;
  problem.input_zero_point = 0;
  problem.weight_scale = {1.0f};
  EXPECT_EQ(RunQuant(problem)[0], -255.0f * 128 * static_cast<float>(k));
}

TEST(PortableIntegerTest, RequantizesToNearestEvenAndSaturates) {
  ir::KernelSpec spec = IntegerSpec(DType::kUInt8, 8, 1);
  spec.requantize = true;
  spec.y = DType::kUInt8;
  spec.bias = ir::BiasKind::kFloat32;
  QuantProblem problem = RandomQuantProblem(spec, 1, {8}, 1);
  problem.x = {0};
  problem.input_zero_point = 0;
  problem.bias = {1.0f, 3.0f, 5.0f, -1.0f, 1e9f, -INFINITY, INFINITY, 2.0f};  // halves after the scale
  problem.output_scale = 2.0f;
  problem.output_zero_point = 100;
  EXPECT_THAT(RunQuant(problem), ElementsAre(100, 102, 102, 100, 255, 0, 255, 101));
}

}  // namespace
}  // namespace clikart::codegen
