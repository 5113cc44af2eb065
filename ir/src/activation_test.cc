#include "clikart/ir/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace clikart::ir {
namespace {

using Exact = long double;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

Exact ExactSigmoid(Exact x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
Exact ExactSilu(Exact x) { return x * ExactSigmoid(x); }
Exact ExactGelu(Exact x) { return x * erfcl(-x / sqrtl(2)) / 2; }
Exact ExactRelu(Exact x) { return x > 0 ? x : 0; }

struct Reference {
  Activation activation;
  std::function<Exact(Exact)> exact;
  float ulps;      // of the exact result
  float absolute;  // allowed where larger
};

const std::vector<Reference>& References() {
  static const std::vector<Reference> references = {
      {Activation::kRelu, ExactRelu, 0, 0},
      {Activation::kRelu6, [](Exact x) { return std::min<Exact>(ExactRelu(x), 6); }, 0, 0},
      {Activation::kRelu2, [](Exact x) { return ExactRelu(x) * ExactRelu(x); }, 1, 0},
      {Activation::kLeakyRelu, [](Exact x) { return x > 0 ? x : x / 100; }, 1, 0},
      {Activation::kHardsigmoid, [](Exact x) { return std::min<Exact>(ExactRelu(x + 3), 6) / 6; }, 2, 0},
      {Activation::kHardswish, [](Exact x) { return x * std::min<Exact>(ExactRelu(x + 3), 6) / 6; }, 3, 0},
      {Activation::kSigmoid, ExactSigmoid, 4, 0},
      {Activation::kTanh, [](Exact x) { return tanhl(x); }, 4, 0},
      {Activation::kSilu, ExactSilu, 4, 0},
      {Activation::kElu, [](Exact x) { return x > 0 ? x : expm1l(x); }, 4, 0},
      {Activation::kSoftplus, [](Exact x) { return ExactRelu(x) + log1pl(expl(-fabsl(x))); }, 4, 0},
      {Activation::kGelu, ExactGelu, 4, 6e-8f},
      {Activation::kGeluTanh,
       [](Exact x) { return x * ExactSigmoid(2 * sqrtl(2 / M_PIl) * (x + 0.044715L * x * x * x)); }, 4, 6e-8f},
      {Activation::kQuickGelu, [](Exact x) { return x * ExactSigmoid(1.702L * x); }, 4, 6e-8f},
      {Activation::kMish,
       [](Exact x) {
         if (x > 100) return x;
         const Exact w = expl(x);
         return x * (w * (w + 2)) / (w * (w + 2) + 2);
       },
       4, 6e-8f},
  };
  return references;
}

// Every float whose bits are a multiple of `step` plus an offset, dense runs around 0 and the places
// where formulas change: multiples of ln(2) / 2 and the clamps.
std::vector<float> Sweep(uint32_t step) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(value)) values.push_back(value);
  }
  const auto dense = [&](float centre, int count) {
    const int32_t at = std::bit_cast<int32_t>(centre);
    for (int32_t i = -count; i <= count; ++i) {
      const float value = std::bit_cast<float>(at + i);
      values.push_back(value);
      values.push_back(-value);
    }
  };
  for (int i = 1; i < 320; ++i) dense(static_cast<float>(i * 0.34657359L), 8);
  for (float seam :
       {0.1f, 1.0f, 3.0f, 6.0f, 10.0f, 14.5f, 16.0f, 20.0f, 87.3365f, 88.0f, 88.7228f, 100.0f, 103.97f, 150.0f}) {
    dense(seam, 50);
  }
  for (int i = -8192; i <= 8192; ++i) values.push_back(static_cast<float>(i) / 512);
  return values;
}

// Distance of `exact` to the next float away from zero, that is one ulp there.
Exact Ulp(Exact exact) {
  const Exact magnitude = fabsl(exact);
  if (magnitude < 0x1p-126L) return 0x1p-149L;
  return ldexpl(1.0L, ilogbl(magnitude) - 23);
}

Exact Allowed(const Reference& reference, Exact exact) {
  const Exact allowed = std::max<Exact>(reference.ulps * Ulp(exact), reference.absolute);
  return fabsl(exact) < 0x1p-126L && reference.ulps > 0 ? std::max<Exact>(allowed, 0x1p-126L) : allowed;
}

TEST(ActivationTest, EveryProgramVerifies) {
  for (Activation activation : AllActivations()) {
    const Program& program = ProgramOf(activation);
    EXPECT_TRUE(program.Verify().ok()) << Name(activation) << program.Verify();
    EXPECT_EQ(program.inputs, IsGated(activation) ? 2 : 1) << Name(activation);
  }
  EXPECT_TRUE(ProgramOf(Activation::kNone).IsIdentity());
}

TEST(ActivationTest, PointwiseWithinTheDocumentedBounds) {
  const std::vector<float> values = Sweep(24593);
  std::vector<float> results(values.size());
  for (const Reference& reference : References()) {
    const float* inputs[] = {values.data()};
    EvaluateLanes(ProgramOf(reference.activation), inputs, static_cast<int64_t>(values.size()), results.data());
    Exact worst = 0, worst_subnormal = 0;
    float worst_at = 0;
    int failures = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const Exact exact = reference.exact(values[i]);
      if (fabsl(exact) > kMax) continue;  // relu2 overflows
      const Exact error = fabsl(results[i] - exact);
      if (!(error <= Allowed(reference, exact)) && ++failures < 5) {
        ADD_FAILURE() << Name(reference.activation) << "(" << values[i] << ") = " << results[i] << ", exactly " << exact
                      << ", off by " << error / Ulp(exact) << " ulp";
      }
      if (fabsl(exact) < 0x1p-126L) {
        worst_subnormal = std::max(worst_subnormal, error);
      } else if (error > reference.absolute && error / Ulp(exact) > worst) {
        worst = error / Ulp(exact);
        worst_at = values[i];
      }
    }
    EXPECT_EQ(failures, 0) << Name(reference.activation);
    std::printf("%-12s worst %.2Lf ulp at %.9g (beyond %.1g), subnormal results off by %.2Lf units\n",
                std::string(Name(reference.activation)).c_str(), worst, static_cast<double>(worst_at),
                static_cast<double>(reference.absolute), worst_subnormal / 0x1p-149L);
  }
}

std::vector<float> RunGated(Activation activation, const std::vector<float>& gates, const std::vector<float>& ups) {
  std::vector<float> results(gates.size());
  const float* inputs[] = {gates.data(), ups.data()};
  EvaluateLanes(ProgramOf(activation), inputs, static_cast<int64_t>(gates.size()), results.data());
  return results;
}

// Gated: the gate's bound times |u| plus one ulp of the result; situ 12 ulp.
TEST(ActivationTest, GatedWithinTheDocumentedBounds) {
  struct Gated {
    Activation activation, gate;
    std::function<Exact(Exact)> exact;
  };
  const std::vector<Gated> cases = {
      {Activation::kSwiglu, Activation::kSilu, ExactSilu},
      {Activation::kGeglu, Activation::kGelu, ExactGelu},
      {Activation::kReglu, Activation::kRelu, ExactRelu},
  };
  const std::vector<float> gates = Sweep(1 << 20);
  for (const Gated& gated : cases) {
    const auto reference = std::find_if(References().begin(), References().end(),
                                        [&](const Reference& r) { return r.activation == gated.gate; });
    for (float up : {1.0f, -0.75f, 3.1f, 1e-20f, -1e30f, kMax}) {
      const std::vector<float> results = RunGated(gated.activation, gates, std::vector<float>(gates.size(), up));
      for (size_t i = 0; i < gates.size(); ++i) {
        const Exact gate_exact = gated.exact(gates[i]), exact = gate_exact * up;
        if (fabsl(exact) > kMax) continue;
        ASSERT_LE(fabsl(results[i] - exact), Allowed(*reference, gate_exact) * fabsl(up) + Ulp(exact))
            << Name(gated.activation) << " of " << gates[i] << ", " << up;
      }
    }
  }
}

TEST(ActivationTest, SituWithin12Ulp) {
  std::vector<float> gates, ups;
  const std::vector<float> values = Sweep(1 << 18);
  for (size_t i = 0; i < values.size(); ++i) {
    for (float up :
         {values[(i * 7919) % values.size()], values[(i * 104729) % values.size()], 0x1p-128f, 25.0f, kMax}) {
      gates.push_back(values[i]);
      ups.push_back(up);
      gates.push_back(up);
      ups.push_back(values[i]);
    }
  }
  const std::vector<float> results = RunGated(Activation::kSitu, gates, ups);
  Exact worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < gates.size(); ++i) {
    const Exact g = gates[i], u = ups[i];
    const Exact exact = 4 * tanhl(g / 4) * ExactSigmoid(g) * 25 * tanhl(u / 25);
    const Exact error = fabsl(results[i] - exact);
    if (fabsl(exact) < 0x1p-126L) {
      ASSERT_LE(error, 0x1p-126L) << gates[i] << ", " << ups[i];
    } else if (error > worst * Ulp(exact)) {
      worst = error / Ulp(exact);
      worst_at = i;
    }
  }
  EXPECT_LE(worst, 12) << "at " << gates[worst_at] << ", " << ups[worst_at];
  std::printf("situ         worst %.2Lf ulp at %.9g, %.9g\n", worst, static_cast<double>(gates[worst_at]),
              static_cast<double>(ups[worst_at]));
}

// What the tail promises beyond the absolute 6e-8: erfc keeps relative accuracy.
TEST(ActivationTest, GeluKeepsRelativeAccuracyInTheTail) {
  Exact worst = 0;
  for (float x = -0.01f; x > -13.0f; x -= 0.0007f) {
    const Exact exact = ExactGelu(x);
    if (fabsl(exact) < 0x1p-126L) break;
    worst = std::max(worst, fabsl(Evaluate(ProgramOf(Activation::kGelu), &x) - exact) / Ulp(exact));
  }
  EXPECT_LE(worst, 8) << "ulp";
  std::printf("gelu         worst %.2Lf ulp in the negative tail\n", worst);
}

TEST(ActivationTest, NanGivesNan) {
  for (Activation activation : AllActivations()) {
    for (uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
      const float nan = std::bit_cast<float>(bits);
      for (float other : {0.0f, 1.0f, -3.0f, 200.0f, kInf, -kInf}) {
        const float first[] = {nan, other}, second[] = {other, nan};
        EXPECT_TRUE(std::isnan(Evaluate(ProgramOf(activation), first))) << Name(activation) << " " << other;
        if (IsGated(activation)) {
          EXPECT_TRUE(std::isnan(Evaluate(ProgramOf(activation), second))) << Name(activation) << " " << other;
        }
      }
    }
  }
}

TEST(ActivationTest, LimitsAtInfinityAndAtTheLargestNumbers) {
  struct Limit {
    Activation activation;
    float at_minus, at_plus;
  };
  const std::vector<Limit> limits = {
      {Activation::kNone, -kInf, kInf},  {Activation::kRelu, 0, kInf},
      {Activation::kRelu6, 0, 6},        {Activation::kLeakyRelu, -kInf, kInf},
      {Activation::kGelu, 0, kInf},      {Activation::kGeluTanh, 0, kInf},
      {Activation::kQuickGelu, 0, kInf}, {Activation::kSilu, 0, kInf},
      {Activation::kSigmoid, 0, 1},      {Activation::kTanh, -1, 1},
      {Activation::kHardswish, 0, kInf}, {Activation::kHardsigmoid, 0, 1},
      {Activation::kElu, -1, kInf},      {Activation::kSoftplus, 0, kInf},
      {Activation::kMish, 0, kInf},      {Activation::kRelu2, 0, kInf},
  };
  size_t pointwise = 0;
  for (Activation activation : AllActivations()) pointwise += !IsGated(activation);
  ASSERT_EQ(limits.size(), pointwise);
  for (const Limit& limit : limits) {
    const Program& program = ProgramOf(limit.activation);
    const float minus = -kInf, plus = kInf, low = -kMax, high = kMax;
    EXPECT_EQ(Evaluate(program, &minus), limit.at_minus) << Name(limit.activation);
    EXPECT_EQ(Evaluate(program, &plus), limit.at_plus) << Name(limit.activation);
    if (std::isfinite(limit.at_minus)) {
      EXPECT_EQ(Evaluate(program, &low), limit.at_minus) << Name(limit.activation);
    }
    if (std::isfinite(limit.at_plus)) {
      EXPECT_EQ(Evaluate(program, &high), limit.at_plus) << Name(limit.activation);
    } else if (limit.activation != Activation::kRelu2) {
      EXPECT_EQ(Evaluate(program, &high), kMax) << Name(limit.activation);  // no overflow on the way
    }
  }
  const auto gated = [](Activation activation, float gate, float up) {
    const float inputs[] = {gate, up};
    return Evaluate(ProgramOf(activation), inputs);
  };
  for (Activation activation : {Activation::kSwiglu, Activation::kGeglu, Activation::kReglu}) {
    EXPECT_EQ(gated(activation, -kInf, 3.0f), 0.0f);
    EXPECT_EQ(gated(activation, -kMax, kMax), 0.0f);
    EXPECT_EQ(gated(activation, kInf, -3.0f), -kInf);
    EXPECT_EQ(gated(activation, kMax, 0.5f), kMax * 0.5f);
  }
  const float deep = -100.0f;
  EXPECT_NEAR(Evaluate(ProgramOf(Activation::kSilu), &deep), -3.72e-42, 1e-44);
}

TEST(ActivationTest, C001_ReluIsTheMaximumAndKeepsNan) {
  for (float x : {-1.0f, -0.0f, 0.0f, 2.0f, kInf, -kInf, 1e-45f, -1e-45f}) {
    const float relu = Evaluate(ProgramOf(Activation::kRelu), &x);
    EXPECT_EQ(std::bit_cast<uint32_t>(relu), std::bit_cast<uint32_t>(x > 0.0f ? x : 0.0f)) << x;
  }
}

TEST(ActivationTest, C005_SigmoidAndTanhOnTheGrid) {
  const auto at = [](Activation activation, float x) { return Evaluate(ProgramOf(activation), &x); };
  float last_sigmoid = 0.0f, last_tanh = -1.0f;
  for (int i = -30 * 64; i <= 30 * 64; ++i) {
    const float x = static_cast<float>(i) / 64;
    const float sigmoid = at(Activation::kSigmoid, x), tanh = at(Activation::kTanh, x);
    EXPECT_GE(sigmoid, last_sigmoid) << x;
    EXPECT_LE(sigmoid, 1.0f);
    EXPECT_GE(tanh, last_tanh) << x;
    EXPECT_LE(tanh, 1.0f);
    EXPECT_EQ(at(Activation::kTanh, -x), -tanh) << x;
    last_sigmoid = sigmoid, last_tanh = tanh;
    for (Activation activation : {Activation::kSigmoid, Activation::kTanh, Activation::kSilu}) {
      const auto reference = std::find_if(References().begin(), References().end(),
                                          [&](const Reference& r) { return r.activation == activation; });
      const Exact exact = reference->exact(x);
      EXPECT_LE(fabsl(at(activation, x) - exact),
                std::max<Exact>(fabsl(exact) > 1e-6L ? 4e-6L * fabsl(exact) : 1e-7L, 0));
    }
  }
}

TEST(ActivationTest, C006_SituAtItsCaps) {
  const auto situ = [](float gate, float up) {
    const float inputs[] = {gate, up};
    return Evaluate(ProgramOf(Activation::kSitu), inputs);
  };
  EXPECT_NEAR(situ(1, 1), 0.715818, 1e-6);
  EXPECT_NEAR(situ(8, 50), 92.90375, 1e-4);
  EXPECT_NEAR(situ(-8, 50), -0.0311657, 1e-7);
  EXPECT_NEAR(situ(30, 100), 99.93287, 1e-4);
  EXPECT_EQ(situ(kInf, kInf), 100.0f);
  EXPECT_EQ(situ(kInf, -kInf), -100.0f);
  EXPECT_EQ(situ(-kInf, 1), 0.0f);
  EXPECT_TRUE(std::isnan(situ(kNan, 1)));
}

TEST(ActivationTest, C007_TheGateComesFirst) {
  const float gate_first[] = {1.0f, 2.0f}, up_first[] = {2.0f, 1.0f};
  EXPECT_NEAR(Evaluate(ProgramOf(Activation::kSwiglu), gate_first), 1.4621172, 1e-6);
  EXPECT_NEAR(Evaluate(ProgramOf(Activation::kSwiglu), up_first), 1.7615942, 1e-6);
}

TEST(ActivationTest, NamesParseBack) {
  for (size_t i = 0; i < AllActivations().size(); ++i) {
    const Activation activation = AllActivations()[i];
    EXPECT_EQ(static_cast<size_t>(activation), i) << Name(activation);
    EXPECT_EQ(ParseActivation(Name(activation)).value(), activation);
    EXPECT_FALSE(ErrorBound(activation).empty());
  }
  EXPECT_EQ(ParseActivation("swish").value(), Activation::kSilu);
  for (const char* wrong : {"", "Relu", "relu ", "gelu_new"}) {
    const auto parsed = ParseActivation(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_THAT(std::string(parsed.status().message()), ::testing::HasSubstr("none, relu, relu6"));
  }
}

// Emitters keep a program in registers: 16 of them with AVX2.
TEST(ActivationTest, ProgramsAreShortAndNarrow) {
  for (Activation activation : AllActivations()) {
    const Program& program = ProgramOf(activation);
    const std::vector<int> last = LastUses(program);
    const auto is_constant = [&](size_t value) {
      return value >= static_cast<size_t>(program.inputs) &&
             program.instructions[value - static_cast<size_t>(program.inputs)].op == Op::kConst;
    };
    size_t widest = 0, operations = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      operations += program.instructions[i].op != Op::kConst;
      size_t live = 0;  // after instruction i; constants are memory operands
      for (size_t value = 0; value <= i + static_cast<size_t>(program.inputs); ++value) {
        live += last[value] > static_cast<int>(i) && !is_constant(value);
      }
      widest = std::max(widest, live);
    }
    EXPECT_LE(widest, 12) << Name(activation);
    EXPECT_LE(operations, 80) << Name(activation);
    std::printf("%-12s %2zu operations, %zu values live\n", std::string(Name(activation)).c_str(), operations, widest);
  }
}

}  // namespace
}  // namespace clikart::ir
