// gelu with the normal distribution function itself.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {

const ActivationDefinition kGeluDefinition = {Activation::kGelu, "gelu", 1, "4 ulp or 6e-8",
                                              [](Lane x, Lane) { return Gelu(x); }};
const ActivationDefinition kGegluDefinition = {Activation::kGeglu, "geglu", 2, "4 ulp or 6e-8 of gelu * |u| + 1 ulp",
                                               [](Lane gate, Lane up) { return Gelu(gate) * up; }};

}  // namespace clikart::ir
