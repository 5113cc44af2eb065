// Kernels over quantized weights from LLVM against the portable ones, bit by bit, on every level that this CPU has.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "clikart/ir/activation.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "llvm_kernels.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

KernelSpec WeightOnlySpec(const std::string& scheme, int64_t n, int64_t k) {
  return SchemeSpec(ir::Contraction::kWeightOnly, scheme, n, k);
}

std::vector<EmittedKernel> Kernels(const KernelSpec& spec) {
  const Target targets[] = {TargetOf(IsaLevel::kBaseline), TargetOf(IsaLevel::kSse4), TargetOf(IsaLevel::kAvx2),
                            TargetOf(IsaLevel::kAvx512)};
  return LlvmKernels(spec, targets);
}

class LlvmWeightOnlyTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, LlvmWeightOnlyTest, ::testing::ValuesIn(kWeightOnlySchemes),
                         [](const auto& scheme) { return std::string(scheme.param); });

TEST_P(LlvmWeightOnlyTest, EveryRowCount) {
  KernelSpec spec = WeightOnlySpec(GetParam(), 51, 77);
  spec.bias = BiasKind::kFloat32;
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (int64_t rows = 1; rows <= 40; ++rows) {
    ExpectPortableBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)));
    if (HasFatalFailure()) return;
  }
}

// Groups and units that end within the depth, and groups in pieces: depth blocks are 256 steps.
TEST_P(LlvmWeightOnlyTest, EveryRemainderOfDepth) {
  for (const int64_t k : {0, 33, 257}) {
    const KernelSpec spec = WeightOnlySpec(GetParam(), 33, k);
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (const int64_t rows : {1, 9}) {
      ExpectPortableBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(k)));
      if (HasFatalFailure()) return;
    }
  }
}

// Panels that are streamed side by side, of groups that are whole cache lines of codes.
TEST_P(LlvmWeightOnlyTest, EveryRowCountThatStreamsCodes) {
  const KernelSpec spec = WeightOnlySpec(GetParam(), 7 * 16 + 5, 160);
  const Target targets[] = {TargetOf(IsaLevel::kAvx2), TargetOf(IsaLevel::kAvx512)};
  for (const EmittedKernel& kernel : LlvmKernels(spec, targets)) {
    for (int64_t rows = 1; rows <= kernel.schedule.few_rows + 2; ++rows) {
      QuantProblem problem = RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows));
      if (rows % 2 == 0) MakeExtreme(problem, static_cast<uint64_t>(rows));
      ExpectPortableBits({kernel}, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Inputs that are zero, subnormal, huge or no numbers, scales of any bits, codes and zero points at their ends.
TEST_P(LlvmWeightOnlyTest, ExtremeValuesOfEveryType) {
  for (const DType x : kFloats) {
    KernelSpec spec = WeightOnlySpec(GetParam(), 42, 61);
    spec.x = x;
    spec.y = x;
    spec.activation = x == DType::kFloat32 ? Activation::kSwiglu : Activation::kGelu;
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (uint64_t seed = 0; seed < 8; ++seed) {
      QuantProblem problem = RandomQuantProblem(spec, 1 + static_cast<int64_t>(seed) * 2, {spec.n}, seed);
      MakeExtreme(problem, seed);
      ExpectPortableBits(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Products and partial sums that are subnormal, and zeros of both signs.
TEST_P(LlvmWeightOnlyTest, TinyInputs) {
  const KernelSpec spec = WeightOnlySpec(GetParam(), 33, 45);
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (const float scale : {0x1p-126f, 0x1p-140f, 0.0f, -0.0f}) {
    QuantProblem problem = RandomQuantProblem(spec, 8, {spec.n}, 5);
    for (float& x : problem.x) x *= scale;
    ExpectPortableBits(kernels, problem);
    if (HasFatalFailure()) return;
  }
}

TEST_P(LlvmWeightOnlyTest, ActOrder) {
  for (const DType x : kFloats) {
    KernelSpec spec = WeightOnlySpec(GetParam(), 60, 96);
    spec.x = x;
    spec.order = InputOrder::kSorted;
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    uint64_t seed = 0;
    for (const int64_t rows : {1, 21}) {
      // Parts that end within a panel, with orders of their own and with the same one.
      for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{{60}, {20, 40}, {1, 2, 30, 3, 24}}) {
        QuantProblem problem = RandomQuantProblem(spec, rows, parts, ++seed);
        ExpectPortableBits(kernels, problem);
        problem.parts.back().g_idx = problem.parts.front().g_idx;
        ExpectPortableBits(kernels, problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// With deep rows fewer of them are decoded in registers; apart from that kernels are the same.
TEST(LlvmWeightOnlyKernels, CodeDoesNotGrowWithTheSpec) {
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const auto size = [&](int64_t n, int64_t k) {
      const auto emitted = LlvmEmitter().Emit(WeightOnlySpec("int4_g32_min", n, k), TargetOf(level));
      return std::get<EmittedKernel>(emitted).code.size();
    };
    EXPECT_EQ(size(16, 32), size(1 << 20, 4096));
    EXPECT_EQ(size(16, 1 << 17), size(1 << 20, 1 << 20));
    EXPECT_LT(size(16, 32), 16u << 10);
    EXPECT_LT(size(16, 1 << 20), 16u << 10);
  }
}

TEST(LlvmWeightOnlyKernels, NameTheirLoops) {
  const auto emitted = LlvmEmitter().Emit(WeightOnlySpec("int4_g32", 48, 64), TargetOf(IsaLevel::kAvx2));
  const auto& kernel = std::get<EmittedKernel>(emitted);
  const auto multiplies = [&](std::string_view name) {
    const auto loop = std::ranges::find(kernel.loops, name, &Loop::name);
    return loop == kernel.loops.end() ? 0 : loop->multiplies;
  };
  EXPECT_EQ(multiplies("micro 6x1"), 2 * 12);
  EXPECT_EQ(multiplies("micro 4x1 packed"), 8);
  EXPECT_EQ(multiplies("micro 1x4 packed"), 8 * 8);  // a unit's codes are unrolled
}

TEST(LlvmWeightOnlyKernels, UnevenGroupsAreRefusedByName) {
  KernelSpec spec = WeightOnlySpec("int4_g32", 32, 64);
  spec.order = InputOrder::kUneven;
  const auto emitted = LlvmEmitter().Emit(spec, TargetOf(IsaLevel::kAvx2));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kUnevenGroups);
}

}  // namespace
}  // namespace clikart::codegen
