// compute="int8" against the portable emitter and rule 6 word by word, in every form that this CPU can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernel_testing.h"
#include "quant_testing.h"
#include "row_int8_driver.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

using ir::BiasKind;
using ir::DType;
using ir::InputOrder;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

// Codes of every width, groups that are whole runs of codes, and groups that end within a unit; every type of scale.
const char* const kSchemes[] = {
    "int8",           "int8_f32",      "int8_g32",         "int8_g16_bf16",    "int8_g5_asym",   "int8_asym_bf16",
    "int8_asym_e8m0", "int8_g16_e4m3", "int8_g16_min_f32", "int8_g300_asym",   "int4",           "int4_g16_e4m3",
    "int4_g32",       "int4_g32_f32",  "int4_g32_min",     "int4_g7_asym_f32", "int4_g128_asym", "int4_g264_asym_bf16",
    "int4_g64_e8m0",  "int2",          "int2_g8",          "int2_g16_bf16",    "int2_g12_asym",  "int2_g32_min_f32"};

KernelSpec RowInt8Spec(const std::string& scheme, int64_t n, int64_t k) {
  return SchemeSpec(ir::Contraction::kRowInt8, scheme, n, k);
}

std::vector<EmittedKernel> Kernels(const KernelSpec& spec) { return RunnableKernels(XbyakEmitter(), spec); }

int64_t FirstDifference(const std::vector<float>& got, const std::vector<float>& wanted) {
  return codegen::FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted)));
}

void ExpectSame(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem,
                const std::vector<float>& wanted, QuantLaunch run) {
  for (const EmittedKernel& kernel : kernels) {
    run.kernel = &kernel;
    ASSERT_EQ(FirstDifference(RunQuant(problem, run), wanted), -1)
        << Name(kernel.isa) << ", " << problem.rows << " rows, tiles of " << run.tile_rows << " by " << run.tile_panels
        << ": " << problem.spec.ToString();
  }
}

// In one tile, and in tiles that split both ways.
void ExpectPortable(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem) {
  ASSERT_FALSE(kernels.empty());
  const std::vector<float> wanted = RunQuant(problem);
  ExpectSame(kernels, problem, wanted, {.edge = Edge::kEnd});
  ExpectSame(kernels, problem, wanted, {.edge = Edge::kStart, .tile_rows = 3, .tile_panels = 2});
}

void ExpectPortable(const KernelSpec& spec, int64_t rows, uint64_t seed) {
  ExpectPortable(Kernels(spec), RandomQuantProblem(spec, rows, {spec.n}, seed));
}

class RowInt8Test : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Schemes, RowInt8Test,
                         ::testing::ValuesIn(std::vector<std::string>(std::begin(kSchemes), std::end(kSchemes))),
                         [](const auto& scheme) { return scheme.param; });

TEST_P(RowInt8Test, EveryRowCount) {
  const KernelSpec spec = RowInt8Spec(GetParam(), 87, 70);
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  for (int64_t rows = 1; rows <= 32; rows += rows < 18 ? 1 : 4) {
    ExpectPortable(kernels, RandomQuantProblem(spec, rows, {spec.n}, static_cast<uint64_t>(rows)));
    if (HasFatalFailure()) return;
  }
  const QuantProblem many = RandomQuantProblem(spec, 70, {spec.n}, 70);
  ExpectSame(kernels, many, RunQuant(many), {.tile_rows = 61});
}

TEST_P(RowInt8Test, EveryRemainderOfDepth) {
  for (int64_t k = 0; k <= 70; k += k < 20 ? 1 : 7) {
    ExpectPortable(RowInt8Spec(GetParam(), 20, k), 1 + k % 12, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
  for (const int64_t k : {127, 129, 255, 257, 300, 301, 1000}) {
    ExpectPortable(RowInt8Spec(GetParam(), 20, k), 3, static_cast<uint64_t>(k));
    if (HasFatalFailure()) return;
  }
}

TEST_P(RowInt8Test, TypesOfInputsAndOutputs) {
  for (const DType x : {DType::kFloat16, DType::kBFloat16}) {
    for (int64_t k = 1; k <= 40; k += 3) {
      KernelSpec spec = RowInt8Spec(GetParam(), 1 + k % 37, k);
      spec.x = spec.y = x;
      spec.bias = BiasKind::kFloat32;
      spec.activation = ir::Activation::kGelu;
      ExpectPortable(spec, 1 + k % 5, static_cast<uint64_t>(k));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RowInt8Test, FollowsRule6WordByWord) {
  for (const int64_t k : {0, 1, 17, 64, 139}) {
    KernelSpec spec = RowInt8Spec(GetParam(), 18, k);
    spec.bias = BiasKind::kFloat32;
    const QuantProblem problem = RandomQuantProblem(spec, 4, {18}, static_cast<uint64_t>(k));
    ExpectSame(Kernels(spec), problem, WordByWord(problem), {});
    if (HasFatalFailure()) return;
  }
}

TEST_P(RowInt8Test, ExtremeValues) {
  for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    KernelSpec spec = RowInt8Spec(GetParam(), 33, 75);
    spec.x = x;
    spec.bias = BiasKind::kFloat32;
    const std::vector<EmittedKernel> kernels = Kernels(spec);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      QuantProblem problem = RandomQuantProblem(spec, 13, {33}, seed);
      MakeExtreme(problem, seed);
      ExpectPortable(kernels, problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Parts in orders of their own, some of them the same; panels with lanes of several.
TEST_P(RowInt8Test, ActOrder) {
  for (const DType x : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t k : {2, 33, 90}) {
      KernelSpec spec = RowInt8Spec(GetParam(), 75, k);
      spec.order = InputOrder::kSorted;
      spec.x = x;
      const std::vector<EmittedKernel> kernels = Kernels(spec);
      for (const std::vector<int64_t>& parts : {std::vector<int64_t>{75}, {3, 0, 41, 1, 30}, {32, 43}}) {
        for (const int64_t rows : {1, 5, 23}) {
          ExpectPortable(kernels, RandomQuantProblem(spec, rows, parts, static_cast<uint64_t>(k + rows)));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(RowInt8Test, Gated) {
  for (int64_t n = 2; n <= 70; n += 2) {
    KernelSpec spec = RowInt8Spec(GetParam(), n, 45);
    spec.activation = ir::Activation::kSwiglu;
    if (n % 4 == 0) spec.order = InputOrder::kSorted;
    ExpectPortable(Kernels(spec), RandomQuantProblem(spec, 1 + n % 9, {n / 2, n / 2}, static_cast<uint64_t>(n)));
    if (HasFatalFailure()) return;
  }
}

// A row's bits depend neither on the rows beside it nor on the tile.
TEST_P(RowInt8Test, RowsAreThoseOfOneRow) {
  const KernelSpec spec = RowInt8Spec(GetParam(), 40, 100);
  const QuantProblem all = RandomQuantProblem(spec, 27, {40}, 5);
  for (const EmittedKernel& kernel : Kernels(spec)) {
    const std::vector<float> y = RunQuant(all, {.kernel = &kernel});
    for (int64_t row = 0; row < all.rows; ++row) {
      QuantProblem one = all;
      one.rows = 1;
      one.x.assign(all.x.begin() + row * spec.k, all.x.begin() + (row + 1) * spec.k);
      const std::vector<float> wanted(y.begin() + row * spec.n, y.begin() + (row + 1) * spec.n);
      ASSERT_EQ(FirstDifference(RunQuant(one, {.kernel = &kernel}), wanted), -1) << "row " << row;
    }
  }
}

// [rows, n] sums of |x w|; where a weight is a multiple of its code and a minimum, of both.
std::vector<double> Magnitudes(QuantProblem problem) {
  QuantPart& part = problem.parts[0];
  const std::vector<uint32_t> minimums = part.minimums;
  std::fill(part.minimums.begin(), part.minimums.end(), 0u);
  std::vector<double> sums = InDouble(problem).magnitude;
  if (minimums.empty()) return sums;
  part.minimums = minimums;
  std::fill(part.scales.begin(), part.scales.end(), 0u);
  const std::vector<double> more = InDouble(problem).magnitude;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  return sums;
}

// docs/numerics.md: what quantizing the inputs and rounding may cost.
TEST_P(RowInt8Test, WithinTheDocumentedBound) {
  constexpr int64_t kDepth = 700, kOutputs = 19, kRows = 3;
  const KernelSpec spec = RowInt8Spec(GetParam(), kOutputs, kDepth);
  const QuantProblem problem = RandomQuantProblem(spec, kRows, {kOutputs}, 4);
  QuantProblem ones = problem;
  std::fill(ones.x.begin(), ones.x.end(), 1.0f);
  const std::vector<double> exact = InDouble(problem).y, products = Magnitudes(problem), weights = Magnitudes(ones);
  const auto terms = static_cast<double>(spec.scheme->GroupCount(kDepth) * (spec.scheme->minimum ? 2 : 1));
  for (const EmittedKernel& kernel : Kernels(spec)) {
    const std::vector<float> y = RunQuant(problem, {.kernel = &kernel});
    for (size_t i = 0; i < y.size(); ++i) {
      const auto row = problem.x.begin() + static_cast<int64_t>(i) / kOutputs * kDepth;
      float largest = 0;
      std::for_each(row, row + kDepth, [&](float x) { largest = std::max(largest, std::fabs(x)); });
      const double of_codes = largest / 127.0 * (0.5 + 0x1p-17) * weights[i];
      const double of_rounding = (terms + 3) * 0x1p-24 * (products[i] + of_codes);
      EXPECT_LE(std::fabs(y[i] - exact[i]), of_codes + of_rounding) << spec.ToString() << " output " << i;
    }
  }
}

TEST_P(RowInt8Test, C033_RowsOfZerosTinyValuesAndInfinities) {
  constexpr int64_t kDepth = 24;
  KernelSpec spec = RowInt8Spec(GetParam(), 3, kDepth);
  spec.bias = BiasKind::kFloat32;
  QuantProblem problem = RandomQuantProblem(spec, 9, {3}, 9);
  const auto row = [&](int64_t index) { return problem.x.begin() + index * kDepth; };
  std::fill_n(row(0), kDepth, 0.0f);
  std::fill_n(row(1), kDepth, -0.0f);
  std::fill_n(row(2), kDepth, 1e-38f);
  std::fill_n(row(3), kDepth, 0.0f);
  row(3)[3] = 1e-44f;
  row(4)[20] = INFINITY;
  row(5)[5] = NAN;
  std::fill_n(row(6), kDepth, 1.4e-45f);  // the scale is subnormal, a quotient beyond 127
  row(6)[3] = 2.5e-43f;
  row(7)[kDepth - 1] = -INFINITY;
  for (const EmittedKernel& kernel : Kernels(spec)) {
    const std::vector<float> y = RunQuant(problem, {.kernel = &kernel});
    for (size_t n = 0; n < 3; ++n) {
      EXPECT_EQ(y[n], problem.bias[n]);
      EXPECT_EQ(y[3 + n], problem.bias[n]);
      for (const size_t index : {2, 3, 6, 8}) EXPECT_TRUE(std::isfinite(y[3 * index + n])) << index;
      for (const size_t index : {4, 5, 7}) EXPECT_TRUE(std::isnan(y[3 * index + n])) << index;
    }
  }
  ExpectPortable(Kernels(spec), problem);
}

// All codes the same, and such that neighbours cancel or add up: a form that saturates anywhere shows here.
TEST_P(RowInt8Test, C034_CodesAtTheirLimits) {
  constexpr int64_t kDepth = 333, kOutputs = 21;
  const KernelSpec spec = RowInt8Spec(GetParam(), kOutputs, kDepth);
  const std::vector<EmittedKernel> kernels = Kernels(spec);
  const auto most = static_cast<uint8_t>((1u << spec.scheme->bits) - 1);
  for (const int64_t rows : {1, 2, 3, 16}) {
    QuantProblem problem = RandomQuantProblem(spec, rows, {kOutputs}, 1);
    for (const int pattern : {0, 1, 2}) {
      for (size_t i = 0; i < problem.x.size(); ++i) {
        problem.x[i] = pattern == 0 || (pattern == 1 && i % 2 == 0) || (pattern == 2 && i % 4 < 2) ? 1.0f : -1.0f;
      }
      for (const auto& [first, second] : {std::pair{most, most}, {0, 0}, {most, 0}, {0x80, 0x80}, {0x7f, 0x81}}) {
        std::vector<uint8_t>& codes = problem.parts[0].codes;
        for (size_t i = 0; i < codes.size(); ++i) codes[i] = (i % 2 == 0 ? first : second) & most;
        for (const int zero_point : {0, 255}) {
          std::fill(problem.parts[0].zero_points.begin(), problem.parts[0].zero_points.end(), zero_point & most);
          ExpectPortable(kernels, problem);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RowInt8KernelTest, C034_OneIsOneInEveryForm) {
  const KernelSpec spec = RowInt8Spec("int8_f32", 1, 64);
  for (const int64_t rows : {1, 2, 3, 16}) {
    QuantProblem problem = RandomQuantProblem(spec, rows, {1}, 1);
    problem.x.assign(static_cast<size_t>(rows * 64), 1.0f);
    problem.parts[0].codes.assign(64, 127);
    problem.parts[0].scales = {std::bit_cast<uint32_t>(1.0f / 127.0f)};
    for (const EmittedKernel& kernel : Kernels(spec)) {
      for (const float y : RunQuant(problem, {.kernel = &kernel})) EXPECT_NEAR(y, 64.0f, 1e-4) << Name(kernel.isa);
    }
  }
}

TEST(RowInt8KernelTest, C039_SumsOfLongGroups) {
  // Codes 15 by inputs that are all the largest: pairs add up beyond 16 bits.
  for (const char* const scheme :
       {"int4_asym_f32", "int4_g128_asym_f32", "int4_f32", "int2_asym_f32", "int4_min_f32"}) {
    const KernelSpec spec = RowInt8Spec(scheme, 2, 4096);
    QuantProblem problem = RandomQuantProblem(spec, 2, {2}, 1);
    std::fill(problem.x.begin(), problem.x.end(), 1000.0f);
    for (uint8_t& code : problem.parts[0].codes) code = static_cast<uint8_t>((1u << spec.scheme->bits) - 1);
    std::fill(problem.parts[0].zero_points.begin(), problem.parts[0].zero_points.end(), uint8_t{0});
    ExpectPortable(Kernels(spec), problem);
    if (HasFatalFailure()) return;
  }
}

// The longest groups that int32 holds, with every product as large as it can be; one input more is refused by name.
TEST(RowInt8KernelTest, LongestGroupsAreExact) {
  struct Limit {
    const char* scheme;
    uint8_t code, zero_point;
    int64_t deepest;
  };
  constexpr Limit kLimits[] = {{"int8_f32", 0x80, 0, 132'104},
                               {"int8_asym_f32", 255, 0, 66'311},
                               {"int8_asym_f32", 0, 255, 66'311},
                               {"int8_min_f32", 255, 0, 66'311}};
  for (const auto& [scheme, code, zero_point, deepest] : kLimits) {
    const KernelSpec spec = RowInt8Spec(scheme, 1, deepest);
    EXPECT_EQ(DeepestGroup(*spec.scheme), deepest);
    QuantProblem problem = RandomQuantProblem(spec, 2, {1}, 3);
    std::fill_n(problem.x.begin(), deepest, 1.0f);
    std::fill_n(problem.x.begin() + deepest, deepest, -1.0f);
    std::fill(problem.parts[0].codes.begin(), problem.parts[0].codes.end(), code);
    for (uint8_t& zero : problem.parts[0].zero_points) zero = zero_point;
    ExpectPortable(Kernels(spec), problem);
    if (HasFatalFailure()) return;
    const auto longer = XbyakEmitter().Emit(RowInt8Spec(scheme, 1, deepest + 1), RunnableTargets().back());
    ASSERT_TRUE(std::holds_alternative<Rejection>(longer));
    EXPECT_EQ(std::get<Rejection>(longer).reason, RejectReason::kGroupTooLong);
  }
}

TEST(RowInt8KernelTest, RefusesUnevenGroupsByName) {
  KernelSpec spec = RowInt8Spec("int4_g32", 16, 64);
  spec.order = InputOrder::kUneven;
  const auto emitted = XbyakEmitter().Emit(spec, TargetOf(IsaLevel::kAvx512Vnni));
  ASSERT_TRUE(std::holds_alternative<Rejection>(emitted));
  EXPECT_EQ(std::get<Rejection>(emitted).reason, RejectReason::kUnevenGroups);
}

TEST(RowInt8KernelTest, EveryFormIsTheBestThatTheTargetHas) {
  for (const Target& target : RunnableTargets()) {
    if (!target.Has(Feature::kAvx2)) continue;
    const bool dot = target.Has(Feature::kAvxVnni) || target.Has(Feature::kAvx512Vnni);
    for (const char* const scheme : {"int8", "int4_g32"}) {
      const auto emitted = XbyakEmitter().Emit(RowInt8Spec(scheme, 16, 64), target);
      ASSERT_TRUE(std::holds_alternative<EmittedKernel>(emitted)) << target.ToString();
      const auto& kernel = std::get<EmittedKernel>(emitted);
      const bool words = !dot && kernel.spec.scheme->bits == 8;
      EXPECT_EQ(kernel.schedule.step, words ? 2 : 4) << target.ToString();
      EXPECT_LE(kernel.isa, target.level()) << target.ToString();
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
