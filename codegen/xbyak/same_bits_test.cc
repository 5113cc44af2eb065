// Every emitter gives the same bits as the oracle, each through its own driver.
#include <algorithm>
#include <random>

#include "../src/kernel_testing.h"
#include "clikart/codegen/emitter.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

TEST(SameBits, EveryEmitterAndPortable) {
  std::mt19937_64 random(11);
  const auto any = [&](int64_t first, int64_t last) { return std::uniform_int_distribution(first, last)(random); };
  constexpr ir::DType kFloats[] = {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16};
  for (int round = 0; round < 60; ++round) {
    ir::KernelSpec spec;
    spec.n = 2 * any(1, 40);
    spec.k = any(0, 400);
    spec.x = kFloats[any(0, 2)];
    spec.w = kFloats[any(0, 2)];
    spec.y = kFloats[any(0, 2)];
    const auto activations = ir::AllActivations();
    spec.activation = activations[round % activations.size()];
    if (!spec.gated()) spec.bias = ir::BiasKind::kFloat32;
    if (any(0, 2) == 0) {
      spec.access = ir::Access::kIndirect;
      spec.taps = any(1, 9);
      spec.k = any(1, 60);
    }
    if (!spec.gated() && any(0, 2) == 0) {
      spec.contraction = ir::Contraction::kDepthwise;
      spec.k = 1;
    }
    // The lowest target's: compiled for the baseline alone.
    const LoadedKernel portable(RunnableKernels(*FindEmitter("portable"), spec).front());
    const int64_t rows = any(1, 40);
    const Problem problem = RandomProblem(spec, rows, Values::kExtreme, static_cast<uint64_t>(round));
    const auto wanted = RunGuarded(portable, problem, GuardedBuffer::Edge::kEnd, rows, 1 << 10);
    for (const Emitter* emitter : Emitters()) {
      for (const EmittedKernel& kernel : RunnableKernels(*emitter, spec)) {
        const auto got = RunGuarded(LoadedKernel(kernel), problem, GuardedBuffer::Edge::kEnd, rows, 1 << 10);
        ASSERT_EQ(FirstDifference(spec.y, got, wanted), -1)
            << kernel.emitter << " on " << Name(kernel.isa) << ", " << rows << " rows of " << spec.ToString();
      }
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
