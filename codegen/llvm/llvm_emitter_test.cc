// Kernels from LLVM against the reference, between guard pages, on every level that this CPU has.
#include "llvm_emitter.h"

#include <algorithm>
#include <bit>
#include <random>
#include <thread>
#include <variant>
#include <vector>

#include "clikart/ir/panel_layout.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "panel_driver.h"

namespace clikart::codegen {
namespace {

using ir::Access;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

KernelSpec Dense(int64_t n, int64_t k) {
  KernelSpec spec;
  spec.n = n;
  spec.k = k;
  return spec;
}

KernelSpec Depthwise(int64_t channels, int64_t taps) {
  KernelSpec spec;
  spec.contraction = ir::Contraction::kDepthwise;
  spec.access = Access::kIndirect;
  spec.n = channels;
  spec.k = 1;
  spec.taps = taps;
  return spec;
}

// On the levels whose code differs, as far as this CPU has them.
std::vector<EmittedKernel> Kernels(const KernelSpec& spec) {
  std::vector<EmittedKernel> kernels;
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kSse4, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    const auto runnable = RunnableTargets();
    const auto has_level = [&](const Target& target) { return target.Includes(TargetOf(level)); };
    if (std::none_of(runnable.begin(), runnable.end(), has_level)) continue;
    auto emitted = LlvmEmitter().Emit(spec, TargetOf(level));
    if (auto* const kernel = std::get_if<EmittedKernel>(&emitted)) {
      EXPECT_EQ(kernel->isa, level);
      kernels.push_back(std::move(*kernel));
    } else {
      ADD_FAILURE() << std::get<Rejection>(emitted).detail << ": " << spec.ToString();
    }
  }
  return kernels;
}

// In one tile and in smaller ones, with memory ending where the data ends and beginning where it begins.
void CheckProblem(const LoadedKernel& kernel, const Problem& problem) {
  const KernelSpec& spec = problem.spec;
  const std::vector<std::byte> wanted = Reference(problem);
  const int64_t panels = ir::LayoutOf(spec).Panels();
  for (const auto edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
    const bool split = edge == GuardedBuffer::Edge::kStart;
    const int64_t tile_rows = std::max<int64_t>(1, split ? problem.rows * 2 / 3 : problem.rows);
    const int64_t tile_panels = std::max<int64_t>(1, split ? panels / 2 : panels);
    const auto got = RunGuarded(kernel, problem, edge, tile_rows, tile_panels);
    const int64_t at = FirstDifference(spec.y, got, wanted);
    ASSERT_EQ(at, -1) << problem.rows << " rows of " << spec.ToString() << ": row " << at / spec.outputs() << " column "
                      << at % spec.outputs();
  }
}

void Check(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, Values values, uint64_t seed) {
  ASSERT_TRUE(spec.Verify().ok()) << spec.Verify();
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  ASSERT_FALSE(kernels.empty());
  for (const EmittedKernel& emitted : kernels) {
    const LoadedKernel kernel(emitted);
    for (const int64_t rows : row_counts) {
      SCOPED_TRACE(Name(emitted.isa));
      CheckProblem(kernel, RandomProblem(spec, rows, values, seed + static_cast<uint64_t>(rows)));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LlvmEmitterTest, EveryRowCountAndWidth) {
  Check(Dense(37, 19), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 25, 29, 47, 61}, Values::kOrdinary, 1);
  for (const int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 48, 63})
    Check(Dense(n, 5), {1, 3, 13}, Values::kOrdinary, 2);
}

TEST(LlvmEmitterTest, EveryDepthRemainderAndBlock) {
  for (const int64_t k : {0, 1, 2, 3, 4, 5, 6, 7, 255, 256, 257, 513}) {
    KernelSpec spec = Dense(33, k);
    spec.w = kFloats[k % 3];
    Check(spec, {1, 2, 6, 31}, Values::kOrdinary, static_cast<uint64_t>(k));
  }
}

TEST(LlvmEmitterTest, EveryMixOfTypes) {
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const DType w : kFloats) {
      for (const DType y : kFloats) {
        KernelSpec spec = Dense(41, 83);
        spec.x = x;
        spec.w = w;
        spec.y = y;
        spec.bias = ++seed % 2 == 0 ? BiasKind::kFloat32 : BiasKind::kNone;
        Check(spec, {1, 3, 9, 60}, Values::kExtreme, seed);
      }
    }
  }
}

TEST(LlvmEmitterTest, EveryActivation) {
  uint64_t seed = 0;
  for (const ir::Activation activation : ir::AllActivations()) {
    KernelSpec spec = Dense(46, 7);
    spec.activation = activation;
    spec.bias = ir::IsGated(activation) ? BiasKind::kNone : BiasKind::kFloat32;
    spec.y = kFloats[++seed % 3];
    Check(spec, {5, 33}, Values::kExtreme, seed);
  }
}

TEST(LlvmEmitterTest, IndirectRowsWithZeroTaps) {
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const int64_t channels : {1, 3, 8, 17, 300}) {
      KernelSpec spec = Dense(21, channels);
      spec.access = Access::kIndirect;
      spec.taps = ++seed % 2 == 0 ? 4 : 9;
      spec.x = x;
      spec.w = kFloats[seed % 3];
      spec.bias = BiasKind::kFloat32;
      Check(spec, {1, 15}, Values::kOrdinary, seed);
    }
  }
}

TEST(LlvmEmitterTest, DepthwiseOfEveryWidth) {
  for (int64_t n = 1; n <= 16; ++n) {
    KernelSpec spec = Depthwise(n, 3);
    spec.x = kFloats[n % 3];
    Check(spec, {1, 13}, Values::kExtreme, static_cast<uint64_t>(n));
  }
  uint64_t seed = 0;
  for (const DType x : kFloats) {
    for (const DType w : kFloats) {
      KernelSpec spec = Depthwise(43, 9);
      spec.x = x;
      spec.w = w;
      spec.y = kFloats[++seed % 3];
      spec.activation = ir::Activation::kHardswish;
      spec.bias = BiasKind::kFloat32;
      Check(spec, {26}, Values::kExtreme, seed);
    }
  }
  for (const int64_t taps : {0, 1, 49}) Check(Depthwise(37, taps), {8}, Values::kOrdinary, 5);
}

// Zero weights let the bias through unchanged, so the one rounding sees any bits: NaNs of every payload, ties,
// subnormals, overflow.
TEST(LlvmEmitterTest, RoundsAnyBits) {
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
    for (const EmittedKernel& kernel : Kernels(spec)) {
      SCOPED_TRACE(Name(kernel.isa));
      CheckProblem(LoadedKernel(kernel), problem);
    }
  }
}

// Inputs of 16 bits widen exactly, all 65536 of them.
TEST(LlvmEmitterTest, WidensEveryHalf) {
  for (const DType x : {DType::kFloat16, DType::kBFloat16}) {
    KernelSpec spec = Dense(1, 1);
    spec.x = x;
    Problem problem = RandomProblem(spec, 65536, Values::kOrdinary, 3);
    problem.weights[0] = 1.0f;
    for (size_t i = 0; i < problem.x.size(); ++i) {
      const auto bits = static_cast<uint16_t>(i);
      problem.x[i] = x == DType::kFloat16 ? ir::HalfToFloat(bits) : ir::BFloat16ToFloat(bits);
    }
    for (const EmittedKernel& kernel : Kernels(spec)) {
      SCOPED_TRACE(Name(kernel.isa));
      const auto got = RunGuarded(LoadedKernel(kernel), problem, GuardedBuffer::Edge::kEnd, 132, 1);
      EXPECT_EQ(FirstDifference(spec.y, got, Reference(problem)), -1);
    }
  }
}

// Sums that a product and an addend in double, rounded twice, get wrong: beside ties of the last place, with
// every sign, near the smallest and the largest floats, and where all cancels.
TEST(LlvmEmitterTest, RoundsAFusedSumOnce) {
  std::mt19937_64 random(11);
  const auto near_power = [&] {
    const auto fraction = static_cast<uint32_t>(random() % 3 == 0 ? random() % 5 : random() % (1u << 23));
    const auto exponent = static_cast<uint32_t>(random() % 2 == 0 ? 120 + random() % 16 : random() % 255);
    return std::bit_cast<float>(static_cast<uint32_t>(random() % 2) << 31 | exponent << 23 | fraction);
  };
  KernelSpec spec = Dense(512, 2);
  Problem problem = RandomProblem(spec, 30, Values::kOrdinary, 3);
  for (float& x : problem.x) x = near_power();
  for (float& w : problem.weights) w = near_power();
  // The first product is the addend, exactly.
  for (size_t i = 0; i < problem.x.size(); i += 2) problem.x[i] = 1.0f;
  for (const EmittedKernel& kernel : Kernels(spec)) {
    SCOPED_TRACE(Name(kernel.isa));
    CheckProblem(LoadedKernel(kernel), problem);
  }
}

TEST(LlvmEmitterTest, CodeDoesNotGrowWithTheSpec) {
  const auto size = [](const KernelSpec& spec) {
    return std::get<EmittedKernel>(LlvmEmitter().Emit(spec, TargetOf(IsaLevel::kAvx2))).code.size();
  };
  EXPECT_EQ(size(Dense(32, 1)), size(Dense(1 << 20, 1 << 20)));
  EXPECT_LT(size(Dense(32, 1)), 16u << 10);
  EXPECT_EQ(size(Depthwise(17, 1)), size(Depthwise((1 << 20) + 1, 769)));
}

TEST(LlvmEmitterTest, TheSameKernelEveryTime) {
  const auto code = [] {
    return std::get<EmittedKernel>(LlvmEmitter().Emit(Dense(32, 1), TargetOf(IsaLevel::kAvx2))).code;
  };
  EXPECT_EQ(code(), code());
}

// Compilations share nothing.
TEST(LlvmEmitterTest, ThreadsCompileSideBySide) {
  constexpr int kThreads = 4;
  std::vector<std::vector<uint8_t>> code(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&code, i] {
      const auto level = i % 2 == 0 ? IsaLevel::kAvx2 : IsaLevel::kAvx512;
      code[i] = std::get<EmittedKernel>(LlvmEmitter().Emit(Dense(48, 9), TargetOf(level))).code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(code[0], code[2]);
  EXPECT_EQ(code[1], code[3]);
  EXPECT_NE(code[0], code[1]);
}

TEST(LlvmEmitterTest, NamesItsLoops) {
  const auto emitted = LlvmEmitter().Emit(Dense(48, 9), TargetOf(IsaLevel::kAvx2));
  const auto& kernel = std::get<EmittedKernel>(emitted);
  const auto of_tile = [](const Loop& loop) { return loop.name == "micro 6x1 packed"; };
  const auto loop = std::find_if(kernel.loops.begin(), kernel.loops.end(), of_tile);
  ASSERT_NE(loop, kernel.loops.end());
  EXPECT_EQ(loop->multiplies, 2 * 12);
  EXPECT_GT(loop->begin, kernel.entry_offsets[MicroEntry({.rows = 6})]);
  EXPECT_LT(loop->end, kernel.instruction_bytes);
}

TEST(LlvmEmitterTest, RejectsWhatItDoesNotServe) {
  KernelSpec codes = Dense(32, 64);
  codes.w = DType::kInt8;
  const auto answer = LlvmEmitter().Emit(codes, TargetOf(IsaLevel::kAvx2));
  ASSERT_TRUE(std::holds_alternative<Rejection>(answer));
  EXPECT_EQ(std::get<Rejection>(answer).reason, RejectReason::kDataType);
}

}  // namespace
}  // namespace clikart::codegen
