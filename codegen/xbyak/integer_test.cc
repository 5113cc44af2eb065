// Integer kernels against rule 6 word by word, in every form that this CPU can run.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "clikart/ir/panel_layout.h"
#include "kernel_testing.h"
#include "quant_testing.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

// AVX-512 without any VNNI, as Skylake-X has it: no level of a later CPU is that.
constexpr Target kWideWords = {{Feature::kSse42, Feature::kAvx2, Feature::kAvx512}};

// Every form of the spec's kernel that runs here.
std::vector<EmittedKernel> Kernels(const KernelSpec& spec) {
  std::vector<EmittedKernel> kernels = RunnableKernels(XbyakEmitter(), spec);
  if (RunnableTargets().back().Includes(kWideWords)) {
    kernels.push_back(std::get<EmittedKernel>(XbyakEmitter().Emit(spec, kWideWords)));
  }
  return kernels;
}

// Index of the first value in which they differ, or -1; all NaNs are equal.
int64_t FirstDifference(const std::vector<float>& got, const std::vector<float>& wanted) {
  return codegen::FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted)));
}

// In one tile and in tiles that split both ways.
void ExpectRule6(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem, QuantLaunch launch = {}) {
  const std::vector<float> wanted = WordByWord(problem);
  for (const EmittedKernel& kernel : kernels) {
    for (const Edge edge : {Edge::kEnd, Edge::kStart}) {
      const bool split =
          (problem.rows + static_cast<int64_t>(edge)) % 2 == 0 && launch.tile_rows == QuantLaunch().tile_rows;
      QuantLaunch run = launch;
      run.kernel = &kernel;
      run.edge = edge;
      if (split) run.tile_rows = 5, run.tile_panels = 2;
      const std::vector<float> got = RunQuant(problem, run);
      ASSERT_EQ(FirstDifference(got, wanted), -1) << Name(kernel.isa) << ", " << problem.rows << " rows, "
                                                  << (split ? "split: " : "whole: ") << problem.spec.ToString();
    }
  }
}

void ExpectRule6(const KernelSpec& spec, int64_t rows, uint64_t seed) {
  ExpectRule6(Kernels(spec), RandomQuantProblem(spec, rows, {spec.n}, seed));
}

class IntegerTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Inputs, IntegerTest, ::testing::Values(DType::kInt8, DType::kUInt8),
                         [](const auto& input) { return std::string(ir::Name(input.param)); });

TEST_P(IntegerTest, EveryRowCount) {
  for (const KernelSpec& spec : {IntegerSpec(GetParam(), 37, 29), Requantized(IntegerSpec(GetParam(), 83, 12))}) {
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (int64_t rows = 1; rows <= 40; ++rows) {
      ExpectRule6(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)));
      if (HasFatalFailure()) return;
    }
    // So many that panels are widened once for all.
    for (const int64_t rows : {48, 49, 53, 70, 133}) {
      ExpectRule6(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)), {.tile_rows = 100});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(IntegerTest, EveryForm) {
  for (const Target& target : RunnableTargets()) {
    if (!target.Has(Feature::kAvx2)) continue;
    const auto emitted = XbyakEmitter().Emit(IntegerSpec(GetParam(), 16, 16), target);
    ASSERT_TRUE(std::holds_alternative<EmittedKernel>(emitted));
    const auto& kernel = std::get<EmittedKernel>(emitted);
    const bool dot = target.Has(Feature::kAvxVnni) || target.Has(Feature::kAvx512Vnni);
    EXPECT_TRUE(!dot || kernel.schedule.step != 2) << "16-bit words for " << target.ToString();
    EXPECT_LE(kernel.isa, target.level()) << target.ToString();
  }
}

TEST_P(IntegerTest, EveryRemainderOfDepth) {
  for (int64_t k = 0; k <= 70; ++k) {
    for (const int64_t rows : {3, 19}) ExpectRule6(IntegerSpec(GetParam(), 20, k), rows, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

TEST_P(IntegerTest, DepthBlocks) {
  for (const int64_t k : {1021, 1023, 1024, 1025, 1027, 2047, 2048, 2050, 4100}) {
    for (const int64_t rows : {2, 17}) ExpectRule6(IntegerSpec(GetParam(), 35, k), rows, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

TEST_P(IntegerTest, EveryWidth) {
  for (int64_t n = 1; n <= 70; ++n) {
    KernelSpec spec = n % 2 == 0 ? Requantized(IntegerSpec(GetParam(), n, 21)) : IntegerSpec(GetParam(), n, 21);
    if (n % 3 == 0) spec.bias = BiasKind::kFloat32;
    ExpectRule6(spec, 1 + n % 16, static_cast<uint64_t>(n));
    if (HasFatalFailure()) return;
  }
}

TEST_P(IntegerTest, EveryActivation) {
  for (const Activation activation : ir::AllActivations()) {
    for (const bool requantize : {false, true}) {
      KernelSpec spec = IntegerSpec(GetParam(), 42, 18);
      spec.activation = activation;
      if (!spec.gated()) spec.bias = BiasKind::kFloat32;
      if (requantize) spec = Requantized(spec);
      ExpectRule6(spec, 4, static_cast<uint64_t>(activation));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(IntegerTest, GatedWidths) {
  for (int64_t n = 2; n <= 70; n += 2) {
    KernelSpec spec = n % 4 == 0 ? Requantized(IntegerSpec(GetParam(), n, 13)) : IntegerSpec(GetParam(), n, 13);
    spec.activation = Activation::kSwiglu;
    ExpectRule6(spec, 1 + n % 9, static_cast<uint64_t>(n));
    if (HasFatalFailure()) return;
  }
}

// All codes the same, and such that neighbours cancel or add up: a form that saturates anywhere shows here.
TEST_P(IntegerTest, C034_CodesAtTheirLimits) {
  const bool is_signed = GetParam() == DType::kInt8;
  const float low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
  constexpr int64_t kRows = 7, kDepth = 333, kOutputs = 21;
  for (const KernelSpec& spec :
       {IntegerSpec(GetParam(), kOutputs, kDepth), Requantized(IntegerSpec(GetParam(), kOutputs, kDepth))}) {
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    QuantProblem problem = RandomQuantProblem(spec, kRows, {kOutputs}, 1);
    problem.output_scale = 3e4f;
    for (const int pattern : {0, 1, 2, 3}) {
      for (size_t i = 0; i < problem.x.size(); ++i) {
        problem.x[i] = pattern == 0 || (pattern == 1 && i % 2 == 0) || (pattern == 2 && i % 4 < 2) ? high : low;
      }
      for (const auto& [first, second] : {std::pair{127, 127}, {-128, -128}, {127, -128}, {-128, 127}}) {
        std::vector<uint8_t>& codes = problem.parts[0].codes;
        for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 2 == 0 ? first : second);
        for (const int32_t zero_point : {-128, 0, 127, 255}) {
          problem.input_zero_point = zero_point;
          ExpectRule6(kernels, problem);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(IntegerTest, OutputZeroPointsAndScalesAtTheirLimits) {
  KernelSpec spec = Requantized(IntegerSpec(GetParam(), 19, 40));
  spec.bias = BiasKind::kFloat32;
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  QuantProblem problem = RandomQuantProblem(spec, 6, {19}, 5);
  problem.bias[0] = INFINITY;
  problem.bias[1] = -INFINITY;
  problem.bias[2] = 1e30f;
  for (const int32_t zero_point : {-128, -1, 0, 127, 128, 255}) {
    for (const float scale : {1e-30f, 0.25f, 20.0f, 1e30f, -7.0f}) {
      problem.output_zero_point = zero_point;
      problem.output_scale = scale;
      ExpectRule6(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// What the contract leaves open is the same in every emitter: NaN, and scales that are none.
TEST_P(IntegerTest, OddScalesAreThoseOfThePortableEmitter) {
  const KernelSpec spec = Requantized(IntegerSpec(GetParam(), 24, 8));
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  QuantProblem problem = RandomQuantProblem(spec, 3, {24}, 6);
  const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f};
  for (size_t i = 0; i < std::size(odd); ++i) problem.weight_scale[3 * i] = odd[i];
  for (const float scale : {1.0f, NAN, INFINITY, 0.0f, -0.0f}) {
    problem.output_scale = scale;
    const std::vector<float> wanted = RunQuant(problem);
    for (const EmittedKernel& kernel : kernels) {
      ASSERT_EQ(FirstDifference(RunQuant(problem, {.kernel = &kernel}), wanted), -1) << Name(kernel.isa) << scale;
    }
  }
}

// Deeper than int32 holds: the sums go on in int64 and are rounded once.
TEST_P(IntegerTest, SumsBeyondInt32) {
  const float low = GetParam() == DType::kInt8 ? -128 : 0, high = low + 255;
  for (const int64_t k : {43'804, 43'805, 65'794, 131'075}) {
    const KernelSpec spec = IntegerSpec(GetParam(), 3, k);
    QuantProblem problem = RandomQuantProblem(spec, 2, {3}, 7);
    for (int64_t i = 0; i < k; ++i) {
      problem.x[static_cast<size_t>(i)] = high;
      problem.x[static_cast<size_t>(k + i)] = i % 1000 == 0 ? high : low;
      problem.parts[0].codes[static_cast<size_t>(i)] = 0x80;
      problem.parts[0].codes[static_cast<size_t>(k + i)] = 0x7f;
    }
    for (const int32_t zero_point : {-128, 255}) {
      problem.input_zero_point = zero_point;
      ExpectRule6(Kernels(spec), problem);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(IntegerTest, SumsBeyondInt32OverManyRowsAndPanels) {
  KernelSpec spec = IntegerSpec(GetParam(), 18, 70'001);
  spec.activation = Activation::kReglu;
  ExpectRule6(spec, 15, 8);
}

}  // namespace
}  // namespace clikart::codegen
