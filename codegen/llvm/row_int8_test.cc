// compute="int8" from LLVM against the portable emitter, in every form that this CPU can run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "clikart/ir/activation.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "llvm_kernels.h"
#include "quant_testing.h"
#include "row_int8_driver.h"

namespace clikart::codegen {
namespace {

using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

const char* const kSchemes[] = {"int8",           "int8_g32",      "int8_g16_bf16",    "int8_g5_asym",
                                "int8_asym_e8m0", "int8_g16_e4m3", "int8_g16_min_f32", "int4",
                                "int4_g32_f32",   "int4_g32_min",  "int4_g7_asym_f32", "int4_g128_asym",
                                "int2",           "int2_g8",       "int2_g12_asym",    "int2_g32_min_f32"};

KernelSpec RowInt8Spec(const std::string& scheme, int64_t n, int64_t k) {
  return SchemeSpec(ir::Contraction::kRowInt8, scheme, n, k);
}

class LlvmRowInt8Test : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, LlvmRowInt8Test, ::testing::ValuesIn(kSchemes),
                         [](const auto& scheme) { return std::string(scheme.param); });

TEST_P(LlvmRowInt8Test, EveryRowCount) {
  KernelSpec spec = RowInt8Spec(GetParam(), 83, 70);
  spec.bias = BiasKind::kFloat32;
  const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
  for (int64_t rows = 1; rows <= 40; ++rows) {
    ExpectPortableBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)));
    if (HasFatalFailure()) return;
  }
}

// Runs of sixteen codes, units and groups that end within the depth.
TEST_P(LlvmRowInt8Test, EveryRemainderOfDepth) {
  for (const int64_t k : {0, 15, 65}) {
    const KernelSpec spec = RowInt8Spec(GetParam(), 33, k);
    const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
    for (const int64_t rows : {1, 9}) {
      ExpectPortableBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(k)));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LlvmRowInt8Test, ExtremeValuesOfEveryType) {
  for (const DType x : kFloats) {
    KernelSpec spec = RowInt8Spec(GetParam(), 42, 75);
    spec.x = x;
    spec.y = x;
    spec.activation = x == DType::kFloat32 ? ir::Activation::kSwiglu : ir::Activation::kGelu;
    const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      QuantProblem problem = RandomQuantProblem(spec, 13, {spec.n}, seed);
      MakeExtreme(problem, seed);
      ExpectPortableBits(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows of zeros, rows whose scale is subnormal or zero, and rows that are not finite.
TEST_P(LlvmRowInt8Test, RowsWithoutAScale) {
  const KernelSpec spec = RowInt8Spec(GetParam(), 20, 40);
  QuantProblem problem = RandomQuantProblem(spec, 9, {spec.n}, 9);
  const float factors[] = {0.0f, -0.0f, 0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p126f, INFINITY, NAN, 1.0f};
  for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] *= factors[i / static_cast<size_t>(spec.k)];
  ExpectPortableBits(LlvmCodeKernels(spec), problem);
}

// Codes and inputs at their limits: a form that saturates anywhere shows here.
TEST_P(LlvmRowInt8Test, CodesAtTheirLimits) {
  const KernelSpec spec = RowInt8Spec(GetParam(), 18, 133);
  const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
  const auto most = static_cast<uint8_t>((1u << spec.scheme->bits) - 1);
  QuantProblem problem = RandomQuantProblem(spec, 7, {spec.n}, 1);
  for (const int run : {1, 2, 200}) {
    for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = static_cast<int>(i) / run % 2 == 0 ? 1.0f : -1.0f;
    for (const auto& [first, second] : {std::pair{most, most}, {0, 0}, {most, 0}, {0x80, 0x7f}}) {
      std::vector<uint8_t>& codes = problem.parts[0].codes;
      for (size_t i = 0; i < codes.size(); ++i) codes[i] = (i % 2 == 0 ? first : second) & most;
      for (uint8_t& zero : problem.parts[0].zero_points) zero = run == 1 ? 0 : most;
      ExpectPortableBits(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LlvmRowInt8Test, ActOrder) {
  for (const DType x : kFloats) {
    KernelSpec spec = RowInt8Spec(GetParam(), 75, 90);
    spec.order = InputOrder::kSorted;
    spec.x = x;
    const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
    for (const std::vector<int64_t>& parts : {std::vector<int64_t>{75}, {3, 0, 41, 1, 30}, {32, 43}}) {
      for (const int64_t rows : {1, 23}) {
        ExpectPortableBits(kernels, RandomQuantProblem(spec, rows, parts, static_cast<uint64_t>(rows)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The longest groups that int32 holds are exact; one input more is refused by name.
TEST(LlvmRowInt8Kernels, LongestGroupsAreExact) {
  for (const auto& [scheme, code] : {std::pair<const char*, uint8_t>{"int8_f32", 0x80}, {"int8_asym_f32", 255}}) {
    const int64_t deepest = DeepestGroup(*ir::QuantScheme::Parse(scheme));
    const KernelSpec spec = RowInt8Spec(scheme, 1, deepest);
    QuantProblem problem = RandomQuantProblem(spec, 2, {1}, 3);
    std::fill_n(problem.x.begin(), deepest, 1.0f);
    std::fill_n(problem.x.begin() + deepest, deepest, -1.0f);
    std::fill(problem.parts[0].codes.begin(), problem.parts[0].codes.end(), code);
    for (uint8_t& zero : problem.parts[0].zero_points) zero = 0;
    ExpectPortableBits(LlvmCodeKernels(spec), problem);
    if (HasFatalFailure()) return;
    const auto longer = LlvmEmitter().Emit(RowInt8Spec(scheme, 1, deepest + 1), TargetOf(IsaLevel::kAvx2));
    ASSERT_TRUE(std::holds_alternative<Rejection>(longer));
    EXPECT_EQ(std::get<Rejection>(longer).reason, RejectReason::kGroupTooLong);
  }
}

TEST(LlvmRowInt8Kernels, UnevenGroupsAreRefusedByName) {
  KernelSpec spec = RowInt8Spec("int4_g32", 16, 64);
  spec.order = InputOrder::kUneven;
  const auto emitted = LlvmEmitter().Emit(spec, TargetOf(IsaLevel::kAvx2));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kUnevenGroups);
}

}  // namespace
}  // namespace clikart::codegen
