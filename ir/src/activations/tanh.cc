// tanh, and situ, whose two soft caps are tanh.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {
namespace {

// |tanh(x / b)| = (1 - e) / (1 + e) with e = exp(-2 |x| / b): both times b, up to sign.
TwoSums TanhParts(Lane x, float b) { return Expm1Negative(AtLeast(-20.0f * b, NegativeAbs(x + x)), b); }

Lane Tanh(Lane x, Lane) {
  const TwoSums parts = TanhParts(x, 1.0f);
  return WithSign(parts.minus_1 / parts.plus_1, Sign(x));
}

// b1 tanh(g / b1) sigmoid(g) * b2 tanh(u / b2) with b1 = 4, b2 = 25, as one quotient.
Lane Situ(Lane gate, Lane up) {
  const TwoSums gate_cap = TanhParts(gate, 4.0f);
  const TwoSums up_cap = TanhParts(up, 25.0f);
  const Lane caps = (gate_cap.minus_1 * up_cap.minus_1) * 100.0f;
  const SplitExp split = ExpNegative(AtLeast(-150.0f, NegativeAbs(gate)));
  const Lane small = (caps * split.significand) * split.scale;
  const Lane numerator = Select(Less(gate, 0.0f), small, caps);
  const Lane denominator = (gate_cap.plus_1 * up_cap.plus_1) * (Value(split) + 1.0f);
  return WithSign(numerator / denominator, Sign(Emit2(Op::kXor, gate, up)));
}

}  // namespace

const ActivationDefinition kTanhDefinition = {Activation::kTanh, "tanh", 1, "4 ulp", Tanh};
const ActivationDefinition kSituDefinition = {Activation::kSitu, "situ", 2, "12 ulp", Situ};

}  // namespace clikart::ir
