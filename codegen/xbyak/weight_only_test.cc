// Kernels over quantized weights against the portable ones, bit by bit, in every form that this CPU can run.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernel_testing.h"
#include "quant_testing.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

KernelSpec SchemeSpec(const char* scheme, int64_t n, int64_t k) {
  return codegen::SchemeSpec(ir::Contraction::kWeightOnly, scheme, n, k);
}

struct Tiles {
  int64_t rows = 1000, panels = 1000;
};

void ExpectSameBits(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem, Tiles tiles = {}) {
  const std::vector<float> wanted = RunQuant(problem);
  // Buffers end at a guard page, or now and then begin at one.
  const Edge edge = problem.rows % 3 == 0 ? Edge::kStart : Edge::kEnd;
  for (const EmittedKernel& kernel : kernels) {
    const std::vector<float> got =
        RunQuant(problem, {.kernel = &kernel, .edge = edge, .tile_rows = tiles.rows, .tile_panels = tiles.panels});
    ASSERT_EQ(FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted))), -1)
        << Name(kernel.isa) << ", " << problem.rows << " rows, tiles of " << tiles.rows << " x " << tiles.panels << ": "
        << problem.spec.ToString();
  }
}

std::vector<EmittedKernel> Kernels(const KernelSpec& spec) { return RunnableKernels(XbyakEmitter(), spec); }

void ExpectSameBits(const KernelSpec& spec, int64_t rows, uint64_t seed, Tiles tiles = {}) {
  ExpectSameBits(Kernels(spec), RandomQuantProblem(spec, rows, {spec.n}, seed), tiles);
}

class WeightOnlyTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, WeightOnlyTest, ::testing::ValuesIn(kWeightOnlySchemes),
                         [](const auto& scheme) { return std::string(scheme.param); });

TEST_P(WeightOnlyTest, EveryRowCount) {
  const KernelSpec spec = SchemeSpec(GetParam(), 83, 77);
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (int64_t rows = 1; rows <= 50; rows += rows < 14 ? 1 : 3) {
    ExpectSameBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)));
    if (HasFatalFailure()) return;
  }
  for (const int64_t rows : {43, 70}) {
    ExpectSameBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)), {.rows = 40});
    if (HasFatalFailure()) return;
  }
}

TEST_P(WeightOnlyTest, EveryRemainderOfDepth) {
  for (int64_t k = 0; k <= 67; k += k < 18 ? 1 : 5) {
    const KernelSpec spec = SchemeSpec(GetParam(), 37, k);
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (const int64_t rows : {1, 6, 40}) {
      ExpectSameBits(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(k)));
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(WeightOnlyTest, DepthBlocks) {
  for (const int64_t k : {255, 257, 512, 1000}) {
    for (const int64_t rows : {2, 41}) {
      ExpectSameBits(SchemeSpec(GetParam(), 35, k), rows, static_cast<uint64_t>(k), {.panels = 2});
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(WeightOnlyTest, EveryWidthTypeAndActivation) {
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const auto activations = ir::AllActivations();
  for (int64_t n = 1; n <= 70; n += n < 18 ? 1 : 4) {
    KernelSpec spec = SchemeSpec(GetParam(), n, 40);
    spec.x = kFloats[n % 3];
    spec.y = kFloats[n / 3 % 3];
    spec.activation = activations[static_cast<size_t>(n) % activations.size()];
    if (spec.gated()) spec.n += n % 2;
    if (!spec.gated() && n % 2 == 0) spec.bias = BiasKind::kFloat32;
    ExpectSameBits(spec, 1 + n % 18, static_cast<uint64_t>(n));
    if (HasFatalFailure()) return;
  }
}

// Inputs that are zero, subnormal, huge or no numbers, scales of any bits, codes and zero points at their ends.
TEST_P(WeightOnlyTest, ExtremeValues) {
  for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    KernelSpec spec = SchemeSpec(GetParam(), 50, 61);
    spec.x = x;
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (const int64_t rows : {1, 2, 4, 9, 40}) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        QuantProblem problem = RandomQuantProblem(spec, rows, {spec.n}, seed);
        MakeExtreme(problem, seed);
        ExpectSameBits(kernels, problem);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// All inputs so small that products and partial sums are subnormal, and zeros of both signs.
TEST_P(WeightOnlyTest, TinyInputs) {
  const KernelSpec spec = SchemeSpec(GetParam(), 33, 45);
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (const int64_t rows : {1, 3, 40}) {
    for (const float scale : {0x1p-100f, 0x1p-126f, 0x1p-140f, 0.0f, -0.0f}) {
      QuantProblem problem = RandomQuantProblem(spec, rows, {spec.n}, 5);
      for (float& x : problem.x) x *= scale;
      ExpectSameBits(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(WeightOnlyTest, ActOrder) {
  for (const int64_t k : {1, 45, 96, 300}) {
    for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      KernelSpec spec = SchemeSpec(GetParam(), 60, k);
      spec.x = x;
      spec.order = InputOrder::kSorted;
      const std::vector<EmittedKernel> kernels = Kernels(spec);
      uint64_t seed = 0;
      for (const int64_t rows : {1, 5, 42}) {
        // Parts that end within a panel, with orders of their own and with the same one.
        for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{{60}, {20, 40}, {1, 2, 30, 3, 24}}) {
          QuantProblem problem = RandomQuantProblem(spec, rows, parts, ++seed);
          ExpectSameBits(kernels, problem, {.rows = 40, .panels = 3});
          problem.parts.back().g_idx = problem.parts.front().g_idx;
          ExpectSameBits(kernels, problem);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(WeightOnlyTest, ActOrderOfGatedParts) {
  KernelSpec spec = SchemeSpec(GetParam(), 44, 70);
  spec.activation = Activation::kSwiglu;
  spec.order = InputOrder::kSorted;
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (const int64_t rows : {2, 39}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      ExpectSameBits(kernels, RandomQuantProblem(spec, rows, {22, 22}, seed));
      ExpectSameBits(kernels, RandomQuantProblem(spec, rows, {5, 30, 9}, seed));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(WeightOnlyKernels, UnevenGroupsAreRefusedByName) {
  KernelSpec spec = SchemeSpec("int4_g32", 32, 64);
  spec.order = InputOrder::kUneven;
  const auto emitted = XbyakEmitter().Emit(spec, TargetOf(IsaLevel::kAvx512));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kUnevenGroups);
}

}  // namespace
}  // namespace clikart::codegen
