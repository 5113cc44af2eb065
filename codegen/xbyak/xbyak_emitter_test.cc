#include "xbyak_emitter.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "../src/kernel_testing.h"
#include "clikart/ir/panel_layout.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

using ir::Access;
using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr GuardedBuffer::Edge kEdges[] = {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart};

EmittedKernel EmitOrDie(const KernelSpec& spec, IsaLevel level) {
  auto emitted = XbyakEmitter().Emit(spec, TargetOf(level));
  EXPECT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << std::get<Rejection>(emitted).detail;
  return std::get<EmittedKernel>(std::move(emitted));
}

KernelSpec Dense(int64_t n, int64_t k) {
  KernelSpec spec;
  spec.n = n;
  spec.k = k;
  return spec;
}

class XbyakEmitterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RunnableKernels(XbyakEmitter(), Dense(1, 1)).empty()) GTEST_SKIP() << "this CPU has no AVX2";
  }

  void Check(const EmittedKernel& emitted, const LoadedKernel& kernel, int64_t rows, Values values, uint64_t seed) {
    const KernelSpec& spec = emitted.spec;
    const Problem problem = RandomProblem(spec, rows, values, seed);
    const std::vector<std::byte> wanted = Reference(problem);
    const int64_t all_panels = ir::LayoutOf(spec).Panels();
    for (const auto edge : kEdges) {
      // Tiles of everything, and tiles that split both ways.
      const bool split = (seed + static_cast<uint64_t>(edge)) % 2 == 0;
      const int64_t tile_rows = split ? std::max<int64_t>(1, rows * 2 / 3) : std::max<int64_t>(1, rows);
      const int64_t tile_panels = split ? std::max<int64_t>(1, all_panels / 2) : std::max<int64_t>(1, all_panels);
      const auto got = RunGuarded(kernel, problem, edge, tile_rows, tile_panels);
      const int64_t at = FirstDifference(spec.y, got, wanted);
      ASSERT_EQ(at, -1) << Name(emitted.isa) << ", rows " << rows << " of " << Text(spec) << ": row "
                        << at / spec.outputs() << " column " << at % spec.outputs();
    }
  }

  void CheckSpec(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, Values values, uint64_t seed) {
    for (const EmittedKernel& emitted : RunnableKernels(XbyakEmitter(), spec)) {
      const LoadedKernel kernel(emitted);
      for (const int64_t rows : row_counts) {
        Check(emitted, kernel, rows, values, seed + rows);
        if (HasFatalFailure()) return;
      }
    }
  }

  static std::string Text(const KernelSpec& spec) { return spec.ToString(); }
};

TEST_F(XbyakEmitterTest, EveryRowCountAndWidth) {
  for (const EmittedKernel& emitted : RunnableKernels(XbyakEmitter(), Dense(37, 19))) {
    const LoadedKernel kernel(emitted);
    for (int64_t rows = 0; rows <= 70; ++rows) {
      Check(emitted, kernel, rows, Values::kOrdinary, rows);
      if (HasFatalFailure()) return;
    }
  }
  for (int64_t n = 0; n <= 70; ++n) {
    CheckSpec(Dense(n, 5), {1, 2, 3, 13}, Values::kOrdinary, n);
    if (HasFatalFailure()) return;
  }
}

TEST_F(XbyakEmitterTest, EveryDepthRemainderAndBlock) {
  for (int64_t k = 0; k <= 20; ++k) CheckSpec(Dense(33, k), {1, 4, 31}, Values::kOrdinary, k);
  for (const int64_t k : {255, 256, 257, 511, 512, 513, 600, 1030}) {
    CheckSpec(Dense(65, k), {1, 3, 6, 7, 29, 50}, Values::kOrdinary, k);
  }
}

TEST_F(XbyakEmitterTest, EveryMixOfTypes) {
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const DType w : kFloats) {
      for (const DType y : kFloats) {
        KernelSpec spec = Dense(41, 283);
        spec.x = x;
        spec.w = w;
        spec.y = y;
        spec.bias = seed % 2 == 0 ? BiasKind::kFloat32 : BiasKind::kNone;
        CheckSpec(spec, {1, 2, 3, 5, 6, 9, 12, 13, 40}, Values::kOrdinary, ++seed);
        CheckSpec(spec, {1, 4, 20}, Values::kExtreme, ++seed);
      }
    }
  }
}

TEST_F(XbyakEmitterTest, EveryActivation) {
  uint64_t seed = 0;
  for (const Activation activation : ir::AllActivations()) {
    for (const DType y : kFloats) {
      KernelSpec spec = Dense(46, 7);
      spec.activation = activation;
      spec.bias = ir::IsGated(activation) ? BiasKind::kNone : BiasKind::kFloat32;
      spec.y = y;
      CheckSpec(spec, {1, 2, 5, 17}, Values::kOrdinary, ++seed);
      CheckSpec(spec, {33}, Values::kExtreme, ++seed);
    }
  }
}

TEST_F(XbyakEmitterTest, GatedOfEveryWidth) {
  for (int64_t n = 2; n <= 70; n += 2) {
    KernelSpec spec = Dense(n, 11);
    spec.activation = Activation::kReglu;
    spec.w = kFloats[n / 2 % 3];
    CheckSpec(spec, {1, 3, 14}, Values::kOrdinary, n);
  }
}

TEST_F(XbyakEmitterTest, IndirectRowsWithZeroTaps) {
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const int64_t channels : {1, 2, 3, 4, 5, 7, 8, 9, 17, 31, 300}) {
      for (const int64_t taps : {1, 2, 9, 49}) {
        KernelSpec spec = Dense(21, channels);
        spec.access = Access::kIndirect;
        spec.taps = taps;
        spec.x = x;
        spec.w = kFloats[++seed % 3];
        spec.bias = BiasKind::kFloat32;
        if (channels * taps > 3000) continue;
        CheckSpec(spec, {1, 6, 15}, Values::kOrdinary, seed);
      }
    }
  }
}

// Zero weights let the bias through unchanged, so the one rounding sees any bits: NaNs of every payload,
// ties, subnormals, overflow.
TEST_F(XbyakEmitterTest, RoundsAnyBits) {
  for (const DType y : kFloats) {
    KernelSpec spec = Dense(6000, 1);
    spec.y = y;
    spec.bias = BiasKind::kFloat32;
    Problem problem = RandomProblem(spec, 2, Values::kOrdinary, 3);
    std::fill(problem.weights.begin(), problem.weights.end(), 0.0f);
    std::mt19937 random(5);
    for (float& bias : problem.bias) bias = std::bit_cast<float>(static_cast<uint32_t>(random()));
    constexpr uint32_t kSpecial[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0x7fffff80, 0x7f800000, 0xff800000, 0x7f7fffff,
                                     0x00000001, 0x807fffff, 0x3f808000, 0x3f818000, 0x00008000, 0x00018000, 0x33000000,
                                     0x33000001, 0x477fefff, 0x477ff000, 0x387fe000, 0x38002000, 0x80000000};
    for (size_t i = 0; i < std::size(kSpecial); ++i) problem.bias[i] = std::bit_cast<float>(kSpecial[i]);
    for (const EmittedKernel& emitted : RunnableKernels(XbyakEmitter(), spec)) {
      const auto got = RunGuarded(LoadedKernel(emitted), problem, GuardedBuffer::Edge::kEnd, 2, 1000);
      EXPECT_EQ(FirstDifference(y, got, Reference(problem)), -1) << ir::Name(y) << " on " << Name(emitted.isa);
    }
  }
}

TEST_F(XbyakEmitterTest, RandomSpecs) {
  std::mt19937_64 random(7);
  const auto any = [&](int64_t first, int64_t last) { return std::uniform_int_distribution(first, last)(random); };
  for (int round = 0; round < 150; ++round) {
    KernelSpec spec = Dense(any(1, 70), any(0, 600));
    spec.x = kFloats[any(0, 2)];
    spec.w = kFloats[any(0, 2)];
    spec.y = kFloats[any(0, 2)];
    spec.activation = ir::AllActivations()[any(0, static_cast<int64_t>(ir::AllActivations().size()) - 1)];
    if (spec.gated()) {
      spec.n += spec.n % 2;
    } else if (any(0, 1) == 1) {
      spec.bias = BiasKind::kFloat32;
    }
    if (any(0, 2) == 0) {
      spec.access = Access::kIndirect;
      spec.taps = any(1, 12);
      spec.k = any(1, 90);
    }
    CheckSpec(spec, {any(0, 8), any(0, 70)}, any(0, 3) == 0 ? Values::kExtreme : Values::kOrdinary, round);
    if (HasFatalFailure()) return;
  }
}

TEST(XbyakEmitter, CodeDoesNotGrowWithTheSpec) {
  for (const auto& [level, most] : {std::pair{IsaLevel::kAvx2, 20u << 10}, std::pair{IsaLevel::kAvx512, 48u << 10}}) {
    KernelSpec small = Dense(1, 1);
    small.access = Access::kIndirect;
    KernelSpec large = small;
    large.n = 1 << 20;
    large.k = 1 << 16;
    large.taps = 769;
    EXPECT_EQ(EmitOrDie(small, level).code.size(), EmitOrDie(large, level).code.size());
    large.w = DType::kBFloat16;
    large.interleave = 2;
    large.activation = Activation::kGelu;
    EXPECT_LT(EmitOrDie(large, level).code.size(), most) << Name(level);
  }
}

TEST(XbyakEmitter, NamesItsRejections) {
  const auto reason = [](const KernelSpec& spec, IsaLevel isa) {
    const auto emitted = XbyakEmitter().Emit(spec, TargetOf(isa));
    EXPECT_TRUE(std::holds_alternative<Rejection>(emitted));
    return std::get<Rejection>(emitted).reason;
  };
  EXPECT_EQ(reason(Dense(4, 4), IsaLevel::kBaseline), RejectReason::kIsaTooOld);
  KernelSpec quantized = Dense(4, 4);
  quantized.contraction = ir::Contraction::kWeightOnly;
  EXPECT_EQ(reason(quantized, IsaLevel::kAvx2), RejectReason::kContractionKind);
  KernelSpec bytes = Dense(4, 4);
  bytes.x = DType::kInt8;
  EXPECT_EQ(reason(bytes, IsaLevel::kAvx2), RejectReason::kDataType);
}

}  // namespace
}  // namespace clikart::codegen
