// tanh, and situ, whose two soft caps are tanh.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {
namespace {

// |tanh(x)| = -m / (2 + m) with m = expm1(-2 |x|), given the factor -2 times x's scale.
Lane Expm1OfTwice(Lane scaled) { return Expm1Negative(AtLeast(-20.0f, NegativeAbs(scaled))); }

Lane Tanh(Lane x, Lane) {
  const Lane m = Expm1OfTwice(x + x);
  return WithSign(m / (m + 2.0f), Sign(x));
}

// b1 tanh(g / b1) sigmoid(g) * b2 tanh(u / b2) with b1 = 4, b2 = 25, as one quotient.
Lane Situ(Lane gate, Lane up) {
  const Lane m1 = Expm1OfTwice(gate * 0.5f);
  const Lane m2 = Expm1OfTwice(up * 0.08f);
  const Lane caps = (m1 * m2) * 100.0f;
  const SplitExp split = ExpNegative(AtLeast(-150.0f, NegativeAbs(gate)));
  const Lane small = (caps * split.significand) * split.scale;
  const Lane numerator = Select(Less(gate, 0.0f), small, caps);
  const Lane denominator = ((m1 + 2.0f) * (m2 + 2.0f)) * (Value(split) + 1.0f);
  return WithSign(numerator / denominator, Sign(Emit2(Op::kXor, gate, up)));
}

}  // namespace

const ActivationDefinition kTanhDefinition = {Activation::kTanh, "tanh", 1, "4 ulp", Tanh};
const ActivationDefinition kSituDefinition = {Activation::kSitu, "situ", 2, "12 ulp", Situ};

}  // namespace clikart::ir
