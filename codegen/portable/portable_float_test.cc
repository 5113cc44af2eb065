#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "../src/kernel_testing.h"
#include "portable_emitter.h"

namespace clikart::codegen {
namespace {

EmittedKernel Emit(const ir::KernelSpec& spec) {
  EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
  return std::get<EmittedKernel>(PortableEmitter().Emit(spec, Target{}));
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
  return specs;
}

class PortableFloatTest : public testing::TestWithParam<GuardedBuffer::Edge> {};

// Every spec word by word, in tiles, with every buffer touching a guard page and extreme values.
TEST_P(PortableFloatTest, C025_FollowsTheContractAndStaysInItsBuffers) {
  uint64_t seed = 0;
  for (const ir::KernelSpec& spec : FloatSpecs()) {
    const LoadedKernel kernel(Emit(spec));
    for (int64_t rows : {0, 1, 2, 5, 18}) {
      for (Values values : {Values::kOrdinary, Values::kExtreme}) {
        const Problem problem = RandomProblem(spec, rows, values, ++seed);
        const auto got = RunGuarded(kernel, problem, GetParam(), rows > 4 ? 17 : 3, 1 + seed % 2);
        ASSERT_EQ(FirstDifference(spec.y, got, Reference(problem)), -1) << spec.ToString() << " rows " << rows;
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

TEST(PortableEmitterTest, IsListedLast) {
  EXPECT_EQ(FindEmitter("portable"), &PortableEmitter());
  EXPECT_EQ(Emitters().back(), &PortableEmitter());
  EXPECT_FALSE(PortableEmitter().needs_executable_memory());
}

}  // namespace
}  // namespace clikart::codegen
