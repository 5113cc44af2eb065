// Kernels that multiply with vdpbf16ps: within rule 5's bound, and the same bits for a row whatever is computed
// beside it.
#include <algorithm>
#include <vector>

#include "../src/kernel_testing.h"
#include "gtest/gtest.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

using ir::DType;
using ir::KernelSpec;

KernelSpec Spec(int64_t n, int64_t k) {
  KernelSpec spec;
  spec.n = n;
  spec.k = k;
  spec.x = spec.w = DType::kBFloat16;
  spec.product = ir::Product::kDotBf16;
  spec.interleave = 2;
  return spec;
}

class DotBf16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RunnableKernels(XbyakEmitter(), Spec(1, 1)).empty()) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  }

  // Against the bound, and with its own sums in tiles of every shape.
  static void Check(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, Values values, uint64_t seed) {
    ASSERT_TRUE(spec.Verify().ok()) << spec.Verify();
    for (const EmittedKernel& emitted : RunnableKernels(XbyakEmitter(), spec)) {
      const LoadedKernel kernel(emitted);
      for (const int64_t rows : row_counts) {
        const Problem problem = RandomProblem(emitted.spec, rows, values, seed + static_cast<uint64_t>(rows));
        const std::vector<std::byte> wanted = Wanted(emitted, problem);
        for (const int64_t tile_rows : {int64_t{1}, std::max<int64_t>(1, rows * 2 / 3), std::max<int64_t>(1, rows)}) {
          const auto edge = tile_rows == 1 ? GuardedBuffer::Edge::kStart : GuardedBuffer::Edge::kEnd;
          const auto got = RunGuarded(kernel, problem, edge, tile_rows, tile_rows == rows ? 100 : 1);
          ASSERT_EQ(FirstDifference(spec.y, got, wanted), -1)
              << rows << " rows in tiles of " << tile_rows << " of " << spec.ToString();
        }
      }
    }
  }
};

TEST_F(DotBf16Test, EveryRowCountAndWidth) {
  for (int64_t rows = 1; rows <= 45; ++rows) Check(Spec(37, 21), {rows}, Values::kOrdinary, 1);
  for (int64_t n = 1; n <= 50; ++n) Check(Spec(n, 6), {1, 3, 15}, Values::kOrdinary, 2);
}

TEST_F(DotBf16Test, EveryDepth) {
  for (int64_t k = 0; k <= 20; ++k) Check(Spec(33, k), {1, 4, 31}, Values::kOrdinary, 3);
  for (const int64_t k : {255, 256, 257, 511, 512, 513, 1029}) Check(Spec(49, k), {1, 7, 29}, Values::kOrdinary, 4);
}

TEST_F(DotBf16Test, ExtremeValues) {
  for (const int64_t k : {1, 2, 7, 40}) Check(Spec(33, k), {1, 5, 20}, Values::kExtreme, 5);
}

TEST_F(DotBf16Test, IndirectRowsWithZeroTaps) {
  for (const int64_t channels : {1, 2, 3, 5, 8, 31, 32, 33, 65, 300}) {
    for (const int64_t taps : {1, 2, 9}) {
      KernelSpec spec = Spec(21, channels);
      spec.access = ir::Access::kIndirect;
      spec.taps = taps;
      spec.bias = ir::BiasKind::kFloat32;
      Check(spec, {1, 6, 18}, Values::kExtreme, 6);
    }
  }
}

TEST_F(DotBf16Test, EveryOutputAndGates) {
  for (const DType y : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    KernelSpec spec = Spec(46, 30);
    spec.y = y;
    spec.activation = ir::Activation::kSwiglu;
    Check(spec, {1, 9, 33}, Values::kOrdinary, 7);
    spec.activation = ir::Activation::kSilu;
    spec.bias = ir::BiasKind::kFloat32;
    Check(spec, {2, 17}, Values::kOrdinary, 8);
  }
}

}  // namespace
}  // namespace clikart::codegen
