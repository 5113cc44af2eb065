#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "../src/kernel_testing.h"
#include "portable_emitter.h"

namespace clikart::codegen {
namespace {

EmittedKernel Emit(const ir::KernelSpec& spec, IsaLevel isa = IsaLevel::kBaseline) {
  EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
  return std::get<EmittedKernel>(PortableEmitter().Emit(spec, TargetOf(isa)));
}

std::vector<ir::KernelSpec> FloatSpecs() {
  using ir::DType;
  std::vector<ir::KernelSpec> specs;
  const auto add = [&](int64_t n, int64_t k) -> ir::KernelSpec& {
    specs.emplace_back();
    specs.back().n = n;
    specs.back().k = k;
    return specs.back();
  };
  for (int64_t n : {1, 3, 5, 9, 17, 31}) {
    for (int64_t k : {0, 1, 3, 17, 31, 300}) add(n, k).bias = ir::BiasKind::kFloat32;
  }
  for (DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (DType w : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (DType y : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        ir::KernelSpec& spec = add(21, 37);
        spec.x = x, spec.w = w, spec.y = y;
        spec.activation = y == DType::kFloat32 ? ir::Activation::kGelu : ir::Activation::kNone;
      }
    }
  }
  for (ir::Activation activation : ir::AllActivations()) {
    for (DType w : {DType::kFloat32, DType::kBFloat16}) {
      ir::KernelSpec& spec = add(38, 12);
      spec.activation = activation;
      spec.w = w;
      if (!ir::IsGated(activation)) spec.bias = ir::BiasKind::kFloat32;
    }
  }
  for (int64_t channels : {1, 3, 5, 16}) {
    ir::KernelSpec& spec = add(19, channels);
    spec.access = ir::Access::kIndirect;
    spec.taps = 9;
    spec.x = channels == 5 ? DType::kBFloat16 : DType::kFloat32;
    spec.bias = ir::BiasKind::kFloat32;
    spec.activation = ir::Activation::kSilu;
  }
  for (int64_t n : {1, 5, 16, 17, 40}) {
    for (int64_t taps : {1, 9}) {
      ir::KernelSpec& spec = add(n, 1);
      spec.contraction = ir::Contraction::kDepthwise;
      spec.access = taps == 1 && n > 16 ? ir::Access::kDense : ir::Access::kIndirect;
      spec.taps = taps;
      spec.x = n == 17 ? DType::kFloat16 : DType::kFloat32;
      spec.w = n == 40 ? DType::kBFloat16 : DType::kFloat32;
      spec.bias = ir::BiasKind::kFloat32;
      spec.activation = ir::Activation::kHardswish;
    }
  }
  return specs;
}

class PortableFloatTest : public testing::TestWithParam<GuardedBuffer::Edge> {};

// Every spec word by word, in tiles, with every buffer touching a guard page and extreme values.
TEST_P(PortableFloatTest, C025_FollowsTheContractAndStaysInItsBuffers) {
  uint64_t seed = 0;
  for (const ir::KernelSpec& spec : FloatSpecs()) {
    ASSERT_TRUE(spec.Verify().ok()) << spec.Verify();
    for (int64_t rows : {0, 1, 2, 5, 18}) {
      for (Values values : {Values::kOrdinary, Values::kExtreme}) {
        const Problem problem = RandomProblem(spec, rows, values, ++seed);
        const std::vector<std::byte> wanted = Reference(problem);
        for (const EmittedKernel& kernel : RunnableKernels(PortableEmitter(), spec)) {
          const auto got = RunGuarded(LoadedKernel(kernel), problem, GetParam(), rows > 4 ? 17 : 3, 1 + seed % 2);
          ASSERT_EQ(FirstDifference(spec.y, got, wanted), -1)
              << Name(kernel.isa) << ", rows " << rows << " of " << spec.ToString();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Edges, PortableFloatTest,
                         testing::Values(GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart));

TEST(PortableEmitterTest, NoRowsOrNoPanelsTouchNothing) {
  ir::KernelSpec spec;
  spec.n = 16;
  spec.k = 4;
  const LoadedKernel kernel(Emit(spec));
  TileArgs args;
  args.panels = 1;
  kernel.Run(args);
  args.rows = 3;
  args.panels = 0;
  kernel.Run(args);
  spec.n = 0;
  args.panels = 1;
  LoadedKernel(Emit(spec)).Run(args);
}

// One launch of `values` as biases over weights of zeros.
std::vector<float> OfBiases(ir::KernelSpec spec, const std::vector<float>& values) {
  spec.n = static_cast<int64_t>(values.size());
  spec.k = 4;
  spec.bias = ir::BiasKind::kFloat32;
  Problem problem{.spec = spec, .rows = 2, .x = std::vector<float>(8), .taps = {}, .weights = {}, .bias = values};
  problem.weights.resize(values.size() * 4);
  const auto y = RunGuarded(LoadedKernel(Emit(spec)), problem, GuardedBuffer::Edge::kEnd, 2, 100);
  std::vector<float> result;
  for (int64_t i = 0; i < spec.n; ++i) {
    result.push_back(LoadElement(spec.y, y.data() + (spec.n + i) * static_cast<int64_t>(ir::SizeOf(spec.y))));
  }
  return result;
}

TEST(PortableEmitterTest, C001_ReluKeepsNan) {
  std::vector<float> biases;
  for (size_t i = 0; i < 37; ++i)
    biases.push_back(std::vector<float>{NAN, -1, -0.0f, 0, 2, INFINITY, -INFINITY}[i % 7]);
  ir::KernelSpec spec;
  spec.activation = ir::Activation::kRelu;
  const std::vector<float> y = OfBiases(spec, biases);
  for (size_t i = 0; i < biases.size(); ++i) {
    EXPECT_TRUE(std::isnan(biases[i]) ? std::isnan(y[i]) : y[i] == std::max(biases[i], 0.0f)) << i;
  }
}

TEST(PortableEmitterTest, C009_OneRoundingAfterBiasAndActivation) {
  for (ir::Activation activation : {ir::Activation::kNone, ir::Activation::kRelu}) {
    ir::KernelSpec spec;
    spec.n = 33;
    spec.k = 2;
    spec.x = spec.w = spec.y = ir::DType::kBFloat16;
    spec.bias = ir::BiasKind::kFloat32;
    spec.activation = activation;
    Problem problem{.spec = spec, .rows = 1, .x = {1, 1}, .taps = {}, .weights = {}, .bias = {}};
    for (int i = 0; i < 33; ++i) {
      problem.weights.insert(problem.weights.end(), {1.0f, 0x1p-8f});
      problem.bias.push_back(0x1p-10f);
    }
    const auto y = RunGuarded(LoadedKernel(Emit(spec)), problem, GuardedBuffer::Edge::kEnd, 1, 100);
    for (int64_t i = 0; i < 33; ++i) EXPECT_EQ(LoadElement(spec.y, y.data() + 2 * i), 1.0078125f) << i;
  }
}

TEST(PortableEmitterTest, TakesTheLevelOfItsTarget) {
  EXPECT_EQ(Emit(ir::KernelSpec{}).isa, IsaLevel::kBaseline);
  EXPECT_EQ(Emit(ir::KernelSpec{}, IsaLevel::kAvx2).isa, IsaLevel::kAvx2);
}

TEST(PortableEmitterTest, IsListedLast) {
  EXPECT_EQ(FindEmitter("portable"), &PortableEmitter());
  EXPECT_EQ(Emitters().back(), &PortableEmitter());
  EXPECT_FALSE(PortableEmitter().needs_executable_memory());
}

}  // namespace
}  // namespace clikart::codegen
