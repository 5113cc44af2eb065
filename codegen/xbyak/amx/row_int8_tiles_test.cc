// compute="int8" by matrix tiles: sums of groups are integers, so that every bit is the portable emitter's.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "../xbyak_emitter.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "quant_testing.h"
#include "row_int8_tile_driver.h"

namespace clikart::codegen {
namespace {

using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

// Every width with every correction; groups of half a tile, of one, of several, and such that units or tiles are cut.
const char* const kSchemes[] = {"int8",     "int8_g32_asym",  "int8_g72_bf16", "int8_g50_min",
                                "int4_g32", "int4_g36_asym",  "int4_g64_min",  "int4_g300_asym_f32",
                                "int4_f32", "int2_g128_bf16", "int2_g90_asym", "int2_min"};

KernelSpec Spec(const std::string& scheme, int64_t n, int64_t k) {
  KernelSpec spec = SchemeSpec(ir::Contraction::kRowInt8, scheme, n, k);
  spec.product = ir::Product::kTileInt8;
  return spec;
}

class RowInt8TilesAmxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!target().Has(Feature::kAmxInt8)) GTEST_SKIP() << "this CPU has no " << Name(Feature::kAmxInt8);
  }

  static const Target& target() { return RunnableTargets().back(); }

  static EmittedKernel Emit(const KernelSpec& spec) {
    auto emitted = XbyakEmitter().Emit(spec, target());
    EXPECT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << std::get<Rejection>(emitted).detail;
    return std::get<EmittedKernel>(std::move(emitted));
  }

  static void CheckBits(const EmittedKernel& kernel, const QuantProblem& problem, QuantLaunch launch = {}) {
    const std::vector<float> wanted = RunQuant(problem);
    launch.kernel = &kernel;
    const std::vector<float> got = RunQuant(problem, launch);
    ASSERT_EQ(FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted))), -1)
        << problem.rows << " rows of " << problem.spec.ToString();
  }

  // Buffers that end at a guard page, or begin at one and have tiles of some rows and panels.
  static void CheckBits(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, uint64_t seed) {
    const EmittedKernel kernel = Emit(spec);
    for (const int64_t rows : row_counts) {
      const QuantProblem problem = RandomQuantProblem(spec, rows, {spec.n}, ++seed);
      CheckBits(kernel, problem, {.edge = Edge::kEnd});
      if (rows > kFewTileRows) CheckBits(kernel, problem, {.edge = Edge::kStart, .tile_rows = 40, .tile_panels = 1});
      if (HasFatalFailure()) return;
    }
  }
};

class RowInt8AmxTest : public RowInt8TilesAmxTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, RowInt8AmxTest, ::testing::ValuesIn(kSchemes),
                         [](const auto& scheme) { return std::string(scheme.param); });

// Few rows by vectors, and the first numbers of row tiles.
TEST_P(RowInt8AmxTest, RowCounts) { CheckBits(Spec(GetParam(), 37, 130), {1, 8, 9, 16, 17, 49, 70}, 1); }

TEST_P(RowInt8AmxTest, RemaindersOfDepth) {
  for (const int64_t k : {32, 33, 63, 64, 67, 128, 300, 301}) {
    CheckBits(Spec(GetParam(), 18, k), {9 + k % 5}, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

// Blocks of whole groups, and pieces of a longer one whose sums go on.
TEST_P(RowInt8AmxTest, DepthBlocks) {
  for (const int64_t k : {1024, 1057, 2100}) {
    CheckBits(Spec(GetParam(), 3, k), {k == 1057 ? 50 : 10}, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

TEST_P(RowInt8AmxTest, TypesWidthsAndActivations) {
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const auto activations = ir::AllActivations();
  for (int64_t n = 1; n <= 40; n += 4) {
    KernelSpec spec = Spec(GetParam(), n, 45);
    spec.x = kFloats[n / 4 % 3];
    spec.y = kFloats[n / 12 % 3];
    spec.activation = activations[static_cast<size_t>(n) % activations.size()];
    if (spec.gated()) spec.n += n % 2;
    if (!spec.gated() && n % 8 == 1) spec.bias = BiasKind::kFloat32;
    CheckBits(spec, {9 + n % 11}, static_cast<uint64_t>(n));
    if (HasFatalFailure()) return;
  }
}

// Parts that end within a panel, in orders of their own and in the same one; gates beside what they open.
TEST_P(RowInt8AmxTest, ActOrder) {
  for (const DType x : {DType::kFloat32, DType::kBFloat16}) {
    KernelSpec spec = Spec(GetParam(), 60, 75);
    spec.order = InputOrder::kSorted;
    spec.x = x;
    if (x == DType::kBFloat16) spec.activation = ir::Activation::kSwiglu;
    const EmittedKernel kernel = Emit(spec);
    for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{{30, 30}, {1, 2, 30, 3, 24}}) {
      QuantProblem problem = RandomQuantProblem(spec, 19, parts, static_cast<uint64_t>(parts.size()));
      CheckBits(kernel, problem, {.tile_panels = 3});
      problem.parts.back().g_idx = problem.parts.front().g_idx;
      CheckBits(kernel, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Inputs that are huge, tiny or not finite; codes and zero points at their limits.
TEST_P(RowInt8AmxTest, ExtremeValues) {
  const KernelSpec spec = Spec(GetParam(), 20, 133);
  const EmittedKernel kernel = Emit(spec);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    QuantProblem problem = RandomQuantProblem(spec, 18, {spec.n}, seed);
    MakeExtreme(problem, seed);
    CheckBits(kernel, problem);
    if (HasFatalFailure()) return;
  }
}

// Sums of a row's codes, and what zero points are multiplied with, beyond 16 bits.
TEST_P(RowInt8AmxTest, LargestSums) {
  const KernelSpec spec = Spec(GetParam(), 17, 301);
  QuantProblem problem = RandomQuantProblem(spec, kFewTileRows + 1, {spec.n}, 1);
  std::fill(problem.x.begin(), problem.x.end(), -1.0f);
  const auto most = static_cast<uint8_t>((1 << spec.scheme->bits) - 1);
  std::fill(problem.parts[0].codes.begin(), problem.parts[0].codes.end(), most);
  CheckBits(Emit(spec), problem);
}

// Every product as large as it can be, in the longest groups that int32 holds.
TEST_F(RowInt8TilesAmxTest, LongestGroupsAreExact) {
  const char* const scheme = "int8_asym_f32";
  const int64_t deepest = DeepestGroup(*ir::QuantScheme::Parse(scheme));
  const KernelSpec spec = Spec(scheme, 2, deepest);
  QuantProblem problem = RandomQuantProblem(spec, kFewTileRows + 1, {2}, 3);
  for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = i / static_cast<size_t>(deepest) % 2 == 0 ? 1 : -1;
  // One output of codes, one of zero points.
  QuantPart& part = problem.parts[0];
  std::fill_n(part.codes.begin(), deepest, uint8_t{255});
  std::fill_n(part.codes.begin() + deepest, deepest, uint8_t{0});
  part.zero_points = {0, 255};
  CheckBits(Emit(spec), problem);
}

TEST_F(RowInt8TilesAmxTest, ReleasesTheTiles) {
  const KernelSpec spec = Spec("int4_g32", 20, 40);
  const EmittedKernel kernel = Emit(spec);
  RunQuant(RandomQuantProblem(spec, 12, {20}, 1), {.kernel = &kernel});
  TileConfiguration configuration;
  __asm__ volatile("sttilecfg %0" : "=m"(configuration));
  const TileConfiguration released{.palette = 0};
  EXPECT_EQ(std::memcmp(&configuration, &released, sizeof configuration), 0);
}

Rejection Refused(const KernelSpec& spec, const Target& target) {
  const auto emitted = XbyakEmitter().Emit(spec, target);
  const auto* const rejection = std::get_if<Rejection>(&emitted);
  return rejection == nullptr ? Rejection{RejectReason::kDisabled, "was not refused"} : *rejection;
}

TEST(RowInt8TilesForAmx, ShortGroupsAreRefusedByName) {
  for (const char* const scheme : {"int4_g16", "int8_g31"}) {
    const Rejection rejection = Refused(Spec(scheme, 32, 96), TargetOf(IsaLevel::kAmx));
    EXPECT_EQ(rejection.reason, RejectReason::kContractionKind) << rejection.detail;
    EXPECT_NE(rejection.detail.find("at least 32"), std::string::npos) << rejection.detail;
  }
  EXPECT_EQ(Refused(Spec("int8", 32, 31), TargetOf(IsaLevel::kAmx)).reason, RejectReason::kContractionKind);
}

TEST(RowInt8TilesForAmx, ATargetWithoutTilesOrDotProductsIsTooOld) {
  const Rejection no_tiles = Refused(Spec("int4_g32", 32, 96), TargetOf(IsaLevel::kAvx512Bf16));
  EXPECT_EQ(no_tiles.reason, RejectReason::kIsaTooOld);
  EXPECT_NE(no_tiles.detail.find(Name(Feature::kAmxInt8)), std::string::npos) << no_tiles.detail;
  const Target no_dots{{Feature::kSse42, Feature::kAvx2, Feature::kAvx512, Feature::kAmxInt8}};
  const Rejection rejection = Refused(Spec("int4_g32", 32, 96), no_dots);
  EXPECT_EQ(rejection.reason, RejectReason::kIsaTooOld);
  EXPECT_NE(rejection.detail.find(Name(Feature::kAvx512Vnni)), std::string::npos) << rejection.detail;
}

}  // namespace
}  // namespace clikart::codegen
