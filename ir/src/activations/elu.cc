// elu with alpha 1.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {
namespace {

// One of the two terms is 0.
Lane Elu(Lane x, Lane) { return PositivePart(x) + Expm1Negative(AtLeast(-20.0f, AtMost(0.0f, x)), 1.0f).minus_1; }

}  // namespace

const ActivationDefinition kEluDefinition = {Activation::kElu, "elu", 1, "4 ulp", Elu};

}  // namespace clikart::ir
