#include "clikart/ir/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace clikart::ir
