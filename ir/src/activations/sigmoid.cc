// sigmoid and the products with it.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {
namespace {

Lane Sigmoid(Lane x, Lane) { return TimesSigmoid(x.builder().Const(1.0f), x); }

// Below the bound the result is -0; the bound keeps inf * 0 away.
Lane QuickGelu(Lane x, Lane) {
  const Lane bounded = AtLeast(-100.0f, x);
  return TimesSigmoid(bounded, bounded * 1.702f);
}

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) is x times a sigmoid of twice the tanh's argument.
Lane GeluTanh(Lane x, Lane) {
  const Lane bounded = AtLeast(-16.0f, x);
  const Lane slope = Fma(bounded * bounded, 0x1.2444f2p-4f, 0x1.988454p+0f);
  return TimesSigmoid(bounded, bounded * slope);
}

}  // namespace

const ActivationDefinition kSigmoidDefinition = {Activation::kSigmoid, "sigmoid", 1, "4 ulp", Sigmoid};
const ActivationDefinition kSiluDefinition = {Activation::kSilu, "silu", 1, "4 ulp",
                                              [](Lane x, Lane) { return Silu(x); }};
const ActivationDefinition kQuickGeluDefinition = {Activation::kQuickGelu, "quick_gelu", 1, "4 ulp or 6e-8", QuickGelu};
const ActivationDefinition kGeluTanhDefinition = {Activation::kGeluTanh, "gelu_tanh", 1, "4 ulp or 6e-8", GeluTanh};
const ActivationDefinition kSwigluDefinition = {Activation::kSwiglu, "swiglu", 2, "4 ulp of silu * |u| + 1 ulp",
                                                [](Lane gate, Lane up) { return Silu(gate) * up; }};

}  // namespace clikart::ir
