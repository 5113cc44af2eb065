// Codes multiplied by matrix tiles. Where each group's sum is an integer that f32 holds, whatever the order of its
// steps, a kernel's bits are those of rule 3 through every epilogue; other values are held against rule 5's bound.
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../xbyak_emitter.h"
#include "code_tile_driver.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

// Each width of codes and each form of a group's end, in few schemes: an emulator runs these.
const char* const kSchemes[] = {"int8", "int4_g64_asym", "int4_g32_min", "int2_g96_asym", "fp8_e4m3_g1024", "mxfp4"};

KernelSpec Spec(const std::string& scheme, int64_t n, int64_t k) {
  KernelSpec spec = SchemeSpec(ir::Contraction::kWeightOnly, scheme, n, k);
  spec.x = DType::kBFloat16;
  spec.product = ir::Product::kTileBf16;
  return spec;
}

class CodeTilesAmxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!target().Has(Feature::kAmxBf16)) GTEST_SKIP() << "this CPU has no " << Name(Feature::kAmxBf16);
  }

  static const Target& target() { return RunnableTargets().back(); }

  static EmittedKernel Emit(const KernelSpec& spec) {
    auto emitted = XbyakEmitter().Emit(spec, target());
    EXPECT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << std::get<Rejection>(emitted).detail;
    return std::get<EmittedKernel>(std::move(emitted));
  }

  // Small whole inputs and, of fp8, codes between 1 and 2: every order of steps gives the same sum.
  static QuantProblem WholeProblem(const KernelSpec& spec, int64_t rows, std::vector<int64_t> parts, uint64_t seed) {
    QuantProblem problem = RandomQuantProblem(spec, rows, std::move(parts), seed);
    std::mt19937_64 random(seed);
    for (float& value : problem.x) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
    for (QuantPart& part : problem.parts) {
      for (uint8_t& code : part.codes) {
        if (spec.scheme->codebook == ir::Codebook::kE4m3) code = (code & 0x87) | 0x38;
        if (spec.scheme->codebook == ir::Codebook::kE5m2) code = (code & 0x83) | 0x3c;
      }
    }
    return problem;
  }

  static void CheckBits(const EmittedKernel& kernel, const QuantProblem& problem, int64_t tile_panels = 1000) {
    const std::vector<float> wanted = RunQuant(problem);
    // Buffers end at a guard page, or begin at one, and tiles split the rows.
    for (const Edge edge : {Edge::kEnd, Edge::kStart}) {
      const int64_t tile_rows = edge == Edge::kEnd ? 1000 : problem.rows * 2 / 3 + 1;
      const std::vector<float> got =
          RunQuant(problem, {.kernel = &kernel, .edge = edge, .tile_rows = tile_rows, .tile_panels = tile_panels});
      ASSERT_EQ(FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted))), -1)
          << problem.rows << " rows of " << problem.spec.ToString();
    }
  }

  static void CheckBits(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, uint64_t seed) {
    const EmittedKernel kernel = Emit(spec);
    for (const int64_t rows : row_counts) CheckBits(kernel, WholeProblem(spec, rows, {spec.n}, ++seed));
  }
};

class WeightOnlyAmxTest : public CodeTilesAmxTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, WeightOnlyAmxTest, ::testing::ValuesIn(kSchemes),
                         [](const auto& scheme) { return std::string(scheme.param); });

TEST_P(WeightOnlyAmxTest, RowCounts) {
  CheckBits(Spec(GetParam(), 37, 64), {1, 2, 15, 16, 17, 31, 32, 33, 50, 66}, 1);
  CheckBits(Spec(GetParam(), 20, 75), {1, 16, 40}, 2);
}

TEST_P(WeightOnlyAmxTest, EveryRemainderOfDepth) {
  for (int64_t k = 0; k <= 68; k += k < 4 ? 1 : 7) {
    CheckBits(Spec(GetParam(), 19, k), {k % 2 == 0 ? 3 : 35}, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

// Blocks of whole groups, and pieces of longer ones whose sums go on.
TEST_P(WeightOnlyAmxTest, DepthBlocks) {
  for (const int64_t k : {511, 512, 545, 1100}) {
    const KernelSpec spec = Spec(GetParam(), 40, k);
    const EmittedKernel kernel = Emit(spec);
    for (const int64_t rows : {2, 35}) {
      CheckBits(kernel, WholeProblem(spec, rows, {spec.n}, static_cast<uint64_t>(k)), 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(WeightOnlyAmxTest, WidthsTypesAndActivations) {
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const auto activations = ir::AllActivations();
  for (int64_t n = 1; n <= 50; n += 3) {
    KernelSpec spec = Spec(GetParam(), n, 40);
    spec.y = kFloats[n / 3 % 3];
    spec.activation = activations[static_cast<size_t>(n) % activations.size()];
    if (spec.gated()) spec.n += n % 2;
    if (!spec.gated() && n % 2 == 0) spec.bias = BiasKind::kFloat32;
    CheckBits(spec, {1 + n % 18}, static_cast<uint64_t>(n));
    if (HasFatalFailure()) return;
  }
}

TEST_P(WeightOnlyAmxTest, ActOrder) {
  for (const int64_t k : {45, 600}) {
    KernelSpec spec = Spec(GetParam(), 60, k);
    spec.order = InputOrder::kSorted;
    const EmittedKernel kernel = Emit(spec);
    uint64_t seed = 0;
    for (const int64_t rows : {5, 36}) {
      // Parts that end within a panel, with orders of their own and with the same one.
      for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{{60}, {1, 2, 30, 3, 24}}) {
        QuantProblem problem = WholeProblem(spec, rows, parts, ++seed);
        CheckBits(kernel, problem, 3);
        problem.parts.back().g_idx = problem.parts.front().g_idx;
        CheckBits(kernel, problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(WeightOnlyAmxTest, StaysInTheBound) {
  for (const int64_t k : {1, 33, 130}) {
    const KernelSpec spec = Spec(GetParam(), 18, k);
    const EmittedKernel kernel = Emit(spec);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      QuantProblem problem = RandomQuantProblem(spec, 6, {spec.n}, seed);
      if (seed % 2 == 1) MakeExtreme(problem, seed);
      const int64_t at = FirstBeyondBound(problem, RunQuant(problem, {.kernel = &kernel}));
      ASSERT_EQ(at, -1) << spec.ToString() << ": row " << at / spec.n << " column " << at % spec.n;
    }
  }
}

// Rule 2: the same row has the same bits at every batch size, in every place.
TEST_P(WeightOnlyAmxTest, ARowDoesNotDependOnTheOthers) {
  for (const int64_t k : {64, 75, 600}) {
    const KernelSpec spec = Spec(GetParam(), 24, k);
    const EmittedKernel kernel = Emit(spec);
    const QuantProblem all = RandomQuantProblem(spec, 50, {spec.n}, static_cast<uint64_t>(k));
    const std::vector<float> sums = RunQuant(all, {.kernel = &kernel});
    for (const auto& [first, rows] :
         std::initializer_list<std::pair<int64_t, int64_t>>{{0, 1}, {49, 1}, {3, 17}, {9, 32}}) {
      QuantProblem some = all;
      some.rows = rows;
      some.x.assign(all.x.begin() + first * k, all.x.begin() + (first + rows) * k);
      const std::vector<float> got = RunQuant(some, {.kernel = &kernel});
      EXPECT_EQ(std::memcmp(got.data(), sums.data() + first * spec.n, got.size() * sizeof(float)), 0)
          << rows << " rows from " << first << ", k " << k;
    }
  }
}

// Scales of a second level are multiplied into the group's.
TEST_F(CodeTilesAmxTest, GlobalScales) {
  const KernelSpec spec = Spec("nvfp4", 40, 16);
  QuantProblem problem = WholeProblem(spec, 18, {25, 15}, 1);
  problem.parts[0].global_scale = 0.37f;
  CheckBits(Emit(spec), problem);
}

TEST_F(CodeTilesAmxTest, ReleasesTheTiles) {
  const KernelSpec spec = Spec("int4_g32", 20, 40);
  const EmittedKernel kernel = Emit(spec);
  RunQuant(RandomQuantProblem(spec, 5, {20}, 1), {.kernel = &kernel});
  TileConfiguration configuration;
  __asm__ volatile("sttilecfg %0" : "=m"(configuration));
  const TileConfiguration released{.palette = 0};
  EXPECT_EQ(std::memcmp(&configuration, &released, sizeof configuration), 0);
}

TEST(CodeTilesForAmx, GroupsThatAreNoWholeTilesAreRefused) {
  const auto emitted = XbyakEmitter().Emit(Spec("int4_g48", 32, 96), TargetOf(IsaLevel::kAmx));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kContractionKind);
}

TEST(CodeTilesForAmx, ATargetWithoutTilesIsTooOld) {
  const auto emitted = XbyakEmitter().Emit(Spec("int4_g32", 32, 96), TargetOf(IsaLevel::kAvx512Bf16));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kIsaTooOld);
  EXPECT_NE(std::get<Rejection>(emitted).detail.find(Name(Feature::kAmxBf16)), std::string::npos);
}

}  // namespace
}  // namespace clikart::codegen
