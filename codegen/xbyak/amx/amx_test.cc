// Products of matrix tiles. Where each sum is an integer that f32 holds, whatever the order, a kernel's bits are
// those of rule 1 through every epilogue; other values are held against rule 5's bound.
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../xbyak_emitter.h"
#include "clikart/ir/activation.h"
#include "clikart/ir/panel_layout.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "tile_driver.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;
using ir::Product;

constexpr GuardedBuffer::Edge kEdges[] = {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart};

Feature FeatureOf(Product product) { return product == Product::kTileF16 ? Feature::kAmxFp16 : Feature::kAmxBf16; }

KernelSpec Spec(Product product, int64_t n, int64_t k) {
  KernelSpec spec;
  spec.n = n;
  spec.k = k;
  spec.x = spec.w = product == Product::kTileF16 ? DType::kFloat16 : DType::kBFloat16;
  spec.product = product;
  spec.interleave = 2;
  return spec;
}

class AmxTest : public ::testing::TestWithParam<Product> {
 protected:
  void SetUp() override {
    if (!target().Has(FeatureOf(GetParam()))) GTEST_SKIP() << "this CPU has no " << Name(FeatureOf(GetParam()));
  }

  static const Target& target() { return RunnableTargets().back(); }

  static EmittedKernel Emit(const KernelSpec& spec) {
    auto emitted = XbyakEmitter().Emit(spec, target());
    EXPECT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << std::get<Rejection>(emitted).detail;
    return std::get<EmittedKernel>(std::move(emitted));
  }

  // Small integers, so that every order of steps gives the same sum.
  static Problem IntegerProblem(const KernelSpec& spec, int64_t rows, uint64_t seed) {
    Problem problem = RandomProblem(spec, rows, Values::kOrdinary, seed);
    std::mt19937_64 random(seed);
    for (float& value : problem.x) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
    for (float& value : problem.weights) value = static_cast<float>(static_cast<int>(random() % 7) - 3) / 8;
    return problem;
  }

  static void CheckBits(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, uint64_t seed) {
    const LoadedKernel kernel(Emit(spec));
    for (const int64_t rows : row_counts) {
      const Problem problem = IntegerProblem(spec, rows, ++seed);
      const std::vector<std::byte> wanted = Reference(problem);
      const int64_t panels = ir::LayoutOf(spec).Panels();
      for (const auto edge : kEdges) {
        // Tiles of everything, and tiles that split both ways.
        const bool split = edge == GuardedBuffer::Edge::kStart;
        const int64_t tile_rows = std::max<int64_t>(1, split ? rows * 2 / 3 : rows);
        const int64_t tile_panels = std::max<int64_t>(1, split ? panels / 2 : panels);
        const auto got = RunGuarded(kernel, problem, edge, tile_rows, tile_panels);
        const int64_t at = FirstDifference(spec.y, got, wanted);
        ASSERT_EQ(at, -1) << rows << " rows of " << spec.ToString() << ": row " << at / spec.outputs() << " column "
                          << at % spec.outputs();
      }
    }
  }

  static std::vector<float> Sums(const LoadedKernel& kernel, const Problem& problem) {
    const auto bytes = RunGuarded(kernel, problem, GuardedBuffer::Edge::kEnd, problem.rows, 100);
    std::vector<float> sums(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(sums.data(), bytes.data(), bytes.size());
    return sums;
  }
};

TEST_P(AmxTest, EveryRowCount) {
  for (int64_t rows = 0; rows <= 68; ++rows) {
    CheckBits(Spec(GetParam(), 37, rows % 3 == 0 ? 64 : 41), {rows}, static_cast<uint64_t>(rows));
    if (HasFatalFailure()) return;
  }
}

TEST_P(AmxTest, EveryWidth) {
  for (int64_t n = 0; n <= 66; ++n) CheckBits(Spec(GetParam(), n, 33), {1, 18}, static_cast<uint64_t>(n));
}

TEST_P(AmxTest, EveryDepthRemainder) {
  for (int64_t k = 0; k <= 70; ++k) CheckBits(Spec(GetParam(), 19, k), {2, 17}, static_cast<uint64_t>(k));
  for (const int64_t k : {95, 96, 97, 128, 199, 200}) CheckBits(Spec(GetParam(), 33, k), {3, 21}, 5);
}

TEST_P(AmxTest, DepthBlocksKeepTheAccumulators) {
  for (const int64_t k : {511, 512, 513, 544, 1025}) CheckBits(Spec(GetParam(), 35, k), {4, 33, 50}, 7);
}

TEST_P(AmxTest, EveryEpilogue) {
  uint64_t seed = 0;
  for (const Activation activation : ir::AllActivations()) {
    KernelSpec spec = Spec(GetParam(), 38, 40);
    spec.activation = activation;
    spec.bias = ir::IsGated(activation) ? BiasKind::kNone : BiasKind::kFloat32;
    constexpr DType kOutputs[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
    spec.y = kOutputs[++seed % 3];
    CheckBits(spec, {5, 35}, seed);
  }
}

TEST_P(AmxTest, TapsLieSideBySide) {
  uint64_t seed = 0;
  for (const int64_t channels : {1, 3, 16, 40}) {
    for (const int64_t taps : {1, 4, 9}) {
      KernelSpec spec = Spec(GetParam(), 21, channels);
      spec.access = ir::Access::kIndirect;
      spec.taps = taps;
      spec.bias = BiasKind::kFloat32;
      CheckBits(spec, {1, 16, 37}, ++seed);
    }
  }
}

TEST_P(AmxTest, StaysInTheBound) {
  uint64_t seed = 0;
  for (const int64_t k : {1, 2, 31, 32, 33, 64, 100, 200}) {
    const KernelSpec spec = Spec(GetParam(), 20, k);
    const LoadedKernel kernel(Emit(spec));
    for (const Values values : {Values::kOrdinary, Values::kExtreme}) {
      const Problem problem = RandomProblem(spec, 18, values, ++seed);
      const int64_t at = FirstBeyondBound(problem, Sums(kernel, problem));
      ASSERT_EQ(at, -1) << spec.ToString() << ": row " << at / spec.n << " column " << at % spec.n;
    }
  }
}

// Rule 2: the same row has the same bits at every batch size, in every place.
TEST_P(AmxTest, ARowDoesNotDependOnTheOthers) {
  for (const int64_t k : {64, 75, 600}) {
    const KernelSpec spec = Spec(GetParam(), 24, k);
    const LoadedKernel kernel(Emit(spec));
    const Problem all = RandomProblem(spec, 50, Values::kOrdinary, static_cast<uint64_t>(k));
    const std::vector<float> sums = Sums(kernel, all);
    for (const auto& [first, rows] :
         std::initializer_list<std::pair<int64_t, int64_t>>{{0, 1}, {49, 1}, {3, 17}, {9, 32}}) {
      Problem some = all;
      some.rows = rows;
      some.x.assign(all.x.begin() + first * k, all.x.begin() + (first + rows) * k);
      const std::vector<float> got = Sums(kernel, some);
      EXPECT_EQ(std::memcmp(got.data(), sums.data() + first * spec.n, got.size() * sizeof(float)), 0)
          << rows << " rows from " << first << ", k " << k;
    }
  }
}

TEST_P(AmxTest, ReleasesTheTiles) {
  const KernelSpec spec = Spec(GetParam(), 20, 40);
  const LoadedKernel kernel(Emit(spec));
  Sums(kernel, RandomProblem(spec, 5, Values::kOrdinary, 1));
  TileConfiguration configuration;
  __asm__ volatile("sttilecfg %0" : "=m"(configuration));
  const TileConfiguration released{.palette = 0};
  EXPECT_EQ(std::memcmp(&configuration, &released, sizeof configuration), 0);
}

TEST_P(AmxTest, MainLoopLoadsATileForAProduct) {
  const EmittedKernel kernel = Emit(Spec(GetParam(), 64, 64));
  EXPECT_EQ(kernel.isa, IsaLevel::kAmx);
  const auto loop = std::find_if(kernel.loops.begin(), kernel.loops.end(),
                                 [](const Loop& candidate) { return candidate.name == "tile 2x2"; });
  ASSERT_NE(loop, kernel.loops.end());
  EXPECT_EQ(loop->multiplies, 4);
}

INSTANTIATE_TEST_SUITE_P(Products, AmxTest, ::testing::Values(Product::kTileBf16, Product::kTileF16),
                         [](const auto& param) { return std::string(ir::Name(param.param)); });

}  // namespace
}  // namespace clikart::codegen
