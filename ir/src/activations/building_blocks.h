// The functions that activations share, each appended to the program of its operands.
// Constants are minimax fits, given as the exact f32 values.
#pragma once

#include "program_builder.h"

namespace clikart::ir {

// exp(x) = significand * scale. Two factors, because 2^n below 2^-126 is no normal number: multiplying
// by `scale` last rounds once, where a result that is subnormal only in between would round twice.
struct SplitExp {
  Lane significand, scale;
};

// For x in [-150, 0] or NaN; 1.2 ulp.
SplitExp ExpNegative(Lane x);
// exp(x + correction) for |correction| far below one ulp of the result's exponent, same range.
SplitExp ExpNegative(Lane x, Lane correction);
Lane Value(const SplitExp& e);

// scale * (exp(x) - 1) and scale * (exp(x) + 1) from scaled = scale * x, for x in [-20, 0] or NaN; 1.5 ulp,
// the first one near zero too.
struct TwoSums {
  Lane minus_1, plus_1;
};
TwoSums Expm1Negative(Lane scaled, float scale);

// x / (1 + exp(-y)), where x stays finite times exp(-150) as y goes to -inf: x * sigmoid(y).
Lane TimesSigmoid(Lane x, Lane y);

// log(1 + x) for x in [0, 1] or NaN; 2 ulp.
Lane Log1p(Lane x);

// x > 0 ? x : 0, NaN kept.
Lane Relu(Lane x);
// x * sigmoid(x)
Lane Silu(Lane x);
// x * Phi(x), Phi the normal distribution function.
Lane Gelu(Lane x);

}  // namespace clikart::ir
