// softplus without a threshold, and mish, which is x * tanh(softplus(x)).
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {
namespace {

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))
Lane Softplus(Lane x, Lane) { return PositivePart(x) + Log1p(Value(ExpNegative(AtLeast(-150.0f, NegativeAbs(x))))); }

// tanh(log(1 + w)) = w (w + 2) / (w (w + 2) + 2), w = exp(x); for x > 0 divided through by w^2.
Lane Mish(Lane x, Lane) {
  const Lane bounded = AtLeast(-150.0f, x);
  const SplitExp split = ExpNegative(AtLeast(-150.0f, NegativeAbs(bounded)));
  const Lane e = Value(split);
  const Lane negative = Less(x, 0.0f);
  const Lane e_plus_2 = e + 2.0f;
  const Lane twice = e + e;
  const Lane twice_plus_1 = twice + 1.0f;
  const Lane small = ((bounded * split.significand) * split.scale) * e_plus_2;
  const Lane numerator = Select(negative, small, x * twice_plus_1);
  const Lane denominator = Select(negative, Fma(e, e_plus_2, 2.0f), Fma(twice, e, twice_plus_1));
  return numerator / denominator;
}

}  // namespace

const ActivationDefinition kSoftplusDefinition = {Activation::kSoftplus, "softplus", 1, "4 ulp", Softplus};
const ActivationDefinition kMishDefinition = {Activation::kMish, "mish", 1, "4 ulp or 6e-8", Mish};

}  // namespace clikart::ir
