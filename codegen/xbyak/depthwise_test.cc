// Depthwise kernels against the reference, between guard pages.
#include <algorithm>
#include <variant>
#include <vector>

#include "../src/kernel_testing.h"
#include "clikart/ir/panel_layout.h"
#include "gtest/gtest.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

using ir::Access;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

KernelSpec Spec(int64_t channels, int64_t taps) {
  KernelSpec spec;
  spec.contraction = ir::Contraction::kDepthwise;
  spec.access = Access::kIndirect;
  spec.n = channels;
  spec.k = 1;
  spec.taps = taps;
  return spec;
}

class DepthwiseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RunnableKernels(XbyakEmitter(), Spec(1, 1)).empty()) GTEST_SKIP() << "this CPU has no AVX2";
  }

  // In one tile, and in tiles of other sizes, which start within the channels.
  static void Check(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, Values values, uint64_t seed) {
    ASSERT_TRUE(spec.Verify().ok()) << spec.Verify();
    for (const EmittedKernel& kernel : RunnableKernels(XbyakEmitter(), spec)) {
      CheckKernel(kernel, row_counts, values, seed);
      if (HasFatalFailure()) return;
    }
  }

  static void CheckKernel(const EmittedKernel& emitted, std::initializer_list<int64_t> row_counts, Values values,
                          uint64_t seed) {
    const KernelSpec& spec = emitted.spec;
    const LoadedKernel kernel(emitted);
    const int64_t panels = ir::LayoutOf(spec).Panels();
    for (const int64_t rows : row_counts) {
      const Problem problem = RandomProblem(spec, rows, values, seed + static_cast<uint64_t>(rows));
      const std::vector<std::byte> wanted = Reference(problem);
      for (const auto edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
        for (const auto& [tile_rows, tile_panels] : {std::pair{rows, panels}, std::pair{rows * 2 / 3, panels / 2}}) {
          const auto got =
              RunGuarded(kernel, problem, edge, std::max<int64_t>(1, tile_rows), std::max<int64_t>(1, tile_panels));
          const int64_t at = FirstDifference(spec.y, got, wanted);
          ASSERT_EQ(at, -1) << Name(emitted.isa) << ", rows " << rows << " of " << spec.ToString() << ": row "
                            << at / spec.outputs() << " column " << at % spec.outputs();
        }
      }
    }
  }
};

TEST_F(DepthwiseTest, EveryRowCountAndWidth) {
  for (int64_t rows = 0; rows <= 40; ++rows) Check(Spec(37, 4), {rows}, Values::kOrdinary, 1);
  for (int64_t n = 0; n <= 50; ++n) {
    for (const DType x : kFloats) {
      KernelSpec spec = Spec(n, 3);
      spec.x = x;
      Check(spec, {1, 13}, Values::kOrdinary, static_cast<uint64_t>(n));
    }
  }
}

TEST_F(DepthwiseTest, EveryMixOfTypes) {
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const DType w : kFloats) {
      for (const DType y : kFloats) {
        KernelSpec spec = Spec(43, 9);
        spec.x = x;
        spec.w = w;
        spec.y = y;
        spec.bias = seed % 2 == 0 ? BiasKind::kFloat32 : BiasKind::kNone;
        Check(spec, {7}, Values::kOrdinary, ++seed);
        Check(spec, {26}, Values::kExtreme, ++seed);
      }
    }
  }
}

TEST_F(DepthwiseTest, EveryPointwiseActivation) {
  for (const ir::Activation activation : ir::AllActivations()) {
    if (ir::IsGated(activation)) continue;
    KernelSpec spec = Spec(24, 5);
    spec.activation = activation;
    spec.bias = BiasKind::kFloat32;
    Check(spec, {14}, Values::kExtreme, 3);
  }
}

TEST_F(DepthwiseTest, NoTapsOneTapAndMany) {
  for (const int64_t taps : {0, 1, 2, 49, 769}) Check(Spec(19, taps), {1, 8}, Values::kOrdinary, 5);
  KernelSpec dense = Spec(53, 1);
  dense.access = Access::kDense;
  dense.bias = BiasKind::kFloat32;
  for (const DType x : kFloats) {
    dense.x = x;
    Check(dense, {1, 6, 31}, Values::kExtreme, 6);
  }
}

TEST_F(DepthwiseTest, CodeDoesNotGrowWithTheSpec) {
  const auto size = [](const KernelSpec& spec) {
    return std::get<EmittedKernel>(XbyakEmitter().Emit(spec, TargetOf(IsaLevel::kAvx2))).code.size();
  };
  EXPECT_EQ(size(Spec(17, 1)), size(Spec((1 << 20) + 1, 769)));
  EXPECT_LT(size(Spec(23, 9)), 4u << 10);
}

}  // namespace
}  // namespace clikart::codegen
