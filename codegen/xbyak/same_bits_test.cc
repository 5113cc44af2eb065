// The fast path and the oracle give the same bits, each through its own driver.
#include <algorithm>
#include <random>

#include "../src/kernel_testing.h"
#include "clikart/codegen/emitter.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

EmittedKernel EmitWith(std::string_view emitter, const ir::KernelSpec& spec) {
  auto emitted = FindEmitter(emitter)->Emit(spec, Target{IsaLevel::kAvx2});
  EXPECT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << emitter;
  return std::get<EmittedKernel>(std::move(emitted));
}

TEST(SameBits, XbyakAndPortable) {
  if (Detect(CpuidRecord::Host(), IsaLevel::kAvx2).isa < IsaLevel::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
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
    const LoadedKernel fast(EmitWith("xbyak", spec));
    const LoadedKernel portable(EmitWith("portable", spec));
    const int64_t rows = any(1, 40);
    const Problem problem = RandomProblem(spec, rows, Values::kExtreme, static_cast<uint64_t>(round));
    const auto wanted = RunGuarded(portable, problem, GuardedBuffer::Edge::kEnd, rows, 1 << 10);
    const auto got = RunGuarded(fast, problem, GuardedBuffer::Edge::kEnd, rows, 1 << 10);
    ASSERT_EQ(FirstDifference(spec.y, got, wanted), -1) << rows << " rows of " << spec.ToString();
  }
}

}  // namespace
}  // namespace clikart::codegen
