// The quantized rules word by word, and in double precision.
#include <algorithm>
#include <cmath>

#include "clikart/ir/program.h"
#include "quant_parts.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;

// Where to start looking for a group's columns.
int64_t FirstOf(const ir::KernelSpec& spec, const QuantPart& part, int64_t group) {
  return part.g_idx.empty() && spec.scheme->group_size > 0 ? group * spec.scheme->group_size : 0;
}

float ZeroPoint(const ir::KernelSpec& spec, const QuantPart& part, int64_t row, int64_t group) {
  if (part.zero_points.empty()) return 0.0f;
  return part.zero_points[static_cast<size_t>(row * Groups(spec) + group)];
}

float Minimum(const ir::KernelSpec& spec, const QuantPart& part, int64_t row, int64_t group) {
  return ir::DecodeScale(spec.scheme->scale_type, part.minimums[static_cast<size_t>(row * Groups(spec) + group)]);
}

float Scale(const ir::KernelSpec& spec, const QuantPart& part, int64_t row, int64_t group) {
  const float scale =
      ir::DecodeScale(spec.scheme->scale_type, part.scales[static_cast<size_t>(row * Groups(spec) + group)]);
  return spec.scheme->HasGlobalScale() ? scale * part.global_scale : scale;
}

float Difference(const ir::KernelSpec& spec, const QuantPart& part, int64_t row, int64_t k) {
  const uint8_t code = part.codes[static_cast<size_t>(row * spec.k + k)];
  if (!spec.scheme) return static_cast<int8_t>(code);
  return ir::DecodeCode(*spec.scheme, code) - ZeroPoint(spec, part, row, GroupOf(spec, part, k));
}

float OneWeightOnly(const QuantProblem& problem, int64_t m, int64_t n) {
  const ir::KernelSpec& spec = problem.spec;
  const auto [part, row] = Locate(problem, n);
  float acc = 0.0f;
  for (int64_t group = 0; group < Groups(spec); ++group) {
    float t = 0.0f, u = 0.0f;
    for (int64_t k = FirstOf(spec, *part, group); k < spec.k; ++k) {
      if (GroupOf(spec, *part, k) != group) {
        if (part->g_idx.empty()) break;
        continue;
      }
      const float x = problem.x[static_cast<size_t>(m * spec.k + k)];
      t = std::fma(x, Difference(spec, *part, row, k), t);
      u += x;
    }
    acc = std::fma(t, Scale(spec, *part, row, group), acc);
    if (spec.scheme->minimum) acc = std::fma(u, Minimum(spec, *part, row, group), acc);
  }
  return acc;
}

// What a group adds to a sum, in doubles, which hold each product exactly.
struct GroupTerms {
  double sum = 0, magnitude = 0;           // of x d
  double inputs = 0, input_magnitude = 0;  // of x
  double flushed = 0;                      // |x| + |d| + 1, what subnormals may take away in units of 2^-126
  double depth = 0;
};

GroupTerms TermsOf(const QuantProblem& problem, const QuantPart& part, int64_t m, int64_t row, int64_t group) {
  const ir::KernelSpec& spec = problem.spec;
  GroupTerms terms;
  for (int64_t k = FirstOf(spec, part, group); k < spec.k; ++k) {
    if (GroupOf(spec, part, k) != group) {
      if (part.g_idx.empty()) break;
      continue;
    }
    const double x = problem.x[static_cast<size_t>(m * spec.k + k)], d = Difference(spec, part, row, k);
    terms.sum += x * d;
    terms.magnitude += std::fabs(x * d);
    terms.inputs += x;
    terms.input_magnitude += std::fabs(x);
    terms.flushed += std::fabs(x) + std::fabs(d) + 1;
    terms.depth += 1;
  }
  return terms;
}

// Rule 5 of each group's t, and rule 3 of what follows (docs/numerics.md).
bool IsInBound(const QuantProblem& problem, int64_t m, int64_t n, float got) {
  constexpr double kLargest = 0x1.fp127;
  const ir::KernelSpec& spec = problem.spec;
  const auto [part, row] = Locate(problem, n);
  double exact = 0, magnitude = 0, bound = 0, additions = 0;
  bool overflows = false, infinite = false;
  for (int64_t group = 0; group < Groups(spec); ++group) {
    const GroupTerms terms = TermsOf(problem, *part, m, row, group);
    const double scale = Scale(spec, *part, row, group);
    exact += terms.sum * scale;
    magnitude += terms.magnitude * std::fabs(scale);
    bound += std::fabs(scale) * (2 * terms.depth * 0x1p-24 * terms.magnitude + 0x1p-126 * terms.flushed);
    additions += 1;
    overflows |= std::isfinite(terms.magnitude) && terms.magnitude > kLargest;
    infinite |= !std::isfinite(scale);
    if (!spec.scheme->minimum) continue;
    const double minimum = Minimum(spec, *part, row, group);
    exact += terms.inputs * minimum;
    magnitude += terms.input_magnitude * std::fabs(minimum);
    bound += std::fabs(minimum) * terms.depth * 0x1p-24 * terms.input_magnitude;
    additions += 1;
    overflows |= std::isfinite(terms.input_magnitude) && terms.input_magnitude > kLargest;
    infinite |= !std::isfinite(minimum);
  }
  bound += (additions + 1) * 0x1p-24 * magnitude + additions * 0x1p-149;
  // Beyond f32 the order of the steps decides what overflows first; an infinite scale shows the sign of any error.
  if (overflows || (std::isfinite(magnitude) && magnitude > kLargest)) return true;
  if (infinite) return !std::isfinite(got);
  if (!std::isfinite(exact)) return std::isnan(exact) ? std::isnan(got) : got == exact || std::isnan(got);
  return std::fabs(got - exact) <= bound;
}

float OneRowInt8(const QuantProblem& problem, int64_t m, int64_t n) {
  const ir::KernelSpec& spec = problem.spec;
  const auto [part, row] = Locate(problem, n);
  const float* x = problem.x.data() + m * spec.k;
  float largest = 0.0f;
  for (int64_t k = 0; k < spec.k; ++k) {
    if (!std::isfinite(x[k])) return NAN;
    largest = std::max(largest, std::fabs(x[k]));
  }
  const float s = largest / 127.0f;
  float acc = 0.0f;
  for (int64_t group = 0; group < Groups(spec); ++group) {
    int64_t dot = 0, sum = 0;
    for (int64_t k = FirstOf(spec, *part, group); k < spec.k; ++k) {
      if (GroupOf(spec, *part, k) != group) {
        if (part->g_idx.empty()) break;
        continue;
      }
      if (s == 0.0f) continue;
      const float code = std::nearbyint(std::min(std::max(x[k] / s, -127.0f), 127.0f));
      dot += static_cast<int64_t>(code) * static_cast<int64_t>(Difference(spec, *part, row, k));
      sum += static_cast<int64_t>(code);
    }
    acc = std::fma(static_cast<float>(dot), s * Scale(spec, *part, row, group), acc);
    if (spec.scheme->minimum) acc = std::fma(static_cast<float>(sum), s * Minimum(spec, *part, row, group), acc);
  }
  return acc;
}

float OneInteger(const QuantProblem& problem, int64_t m, int64_t n) {
  const ir::KernelSpec& spec = problem.spec;
  const auto [part, row] = Locate(problem, n);
  int64_t dot = 0;
  for (int64_t k = 0; k < spec.k; ++k) {
    const auto x = static_cast<int64_t>(problem.x[static_cast<size_t>(m * spec.k + k)]) - problem.input_zero_point;
    dot += x * static_cast<int64_t>(Difference(spec, *part, row, k));
  }
  const float scale = problem.input_scale * problem.weight_scale[static_cast<size_t>(n)];
  return std::fma(static_cast<float>(dot), scale, problem.bias.empty() ? -0.0f : problem.bias[static_cast<size_t>(n)]);
}

float Rounded(const QuantProblem& problem, float value) {
  const ir::KernelSpec& spec = problem.spec;
  if (spec.requantize) {
    const double low = spec.y == ir::DType::kInt8 ? -128 : 0;
    const double code = std::nearbyint(value / problem.output_scale) + static_cast<double>(problem.output_zero_point);
    if (std::isnan(code)) return static_cast<float>(low);  // no code stands for it
    return static_cast<float>(std::min(std::max(code, low), low + 255));
  }
  std::byte element[4];
  StoreElement(spec.y, value, element);
  return LoadElement(spec.y, element);
}

}  // namespace

std::vector<float> Contract(const QuantProblem& problem) {
  const ir::KernelSpec& spec = problem.spec;
  std::vector<float> sums;
  for (int64_t m = 0; m < problem.rows; ++m) {
    for (int64_t n = 0; n < spec.n; ++n) {
      switch (spec.contraction) {
        case Contraction::kInteger:
          sums.push_back(OneInteger(problem, m, n));
          break;
        case Contraction::kRowInt8:
          sums.push_back(OneRowInt8(problem, m, n));
          break;
        default:
          sums.push_back(OneWeightOnly(problem, m, n));
      }
    }
  }
  return sums;
}

std::vector<float> Finish(const QuantProblem& problem, std::span<const float> sums) {
  const ir::KernelSpec& spec = problem.spec;
  const auto biased = [&](int64_t m, int64_t n) {
    const float sum = sums[static_cast<size_t>(m * spec.n + n)];
    const bool as_it_is = problem.bias.empty() || spec.contraction == Contraction::kInteger;
    return as_it_is ? sum : sum + problem.bias[static_cast<size_t>(n)];
  };
  std::vector<float> y;
  for (int64_t m = 0; m < problem.rows; ++m) {
    for (int64_t o = 0; o < spec.outputs(); ++o) {
      const float inputs[] = {biased(m, o), spec.gated() ? biased(m, spec.n / 2 + o) : 0.0f};
      y.push_back(Rounded(problem, ir::Evaluate(ir::ProgramOf(spec.activation), inputs)));
    }
  }
  return y;
}

std::vector<float> WordByWord(const QuantProblem& problem) { return Finish(problem, Contract(problem)); }

int64_t FirstBeyondBound(const QuantProblem& problem, std::span<const float> sums) {
  for (int64_t m = 0; m < problem.rows; ++m) {
    for (int64_t n = 0; n < problem.spec.n; ++n) {
      const int64_t at = m * problem.spec.n + n;
      if (!IsInBound(problem, m, n, sums[static_cast<size_t>(at)])) return at;
    }
  }
  return -1;
}

DoubleResult InDouble(const QuantProblem& problem) {
  const ir::KernelSpec& spec = problem.spec;
  DoubleResult result;
  for (int64_t m = 0; m < problem.rows; ++m) {
    for (int64_t n = 0; n < spec.n; ++n) {
      const auto [part, row] = Locate(problem, n);
      double y = 0, magnitude = 0;
      for (int64_t k = 0; k < spec.k; ++k) {
        const int64_t group = GroupOf(spec, *part, k);
        const double scale =
            ir::DecodeScale(spec.scheme->scale_type, part->scales[static_cast<size_t>(row * Groups(spec) + group)]);
        const double minimum = spec.scheme->minimum ? Minimum(spec, *part, row, group) : 0.0;
        const double weight = Difference(spec, *part, row, k) * scale * static_cast<double>(part->global_scale);
        const double product = static_cast<double>(problem.x[static_cast<size_t>(m * spec.k + k)]) * (weight + minimum);
        y += product;
        magnitude += std::fabs(product);
      }
      result.y.push_back(y);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace clikart::codegen
