// The piecewise linear family. Bounds are put first in max and min, so that NaN stays NaN.
#include "activations/building_blocks.h"
#include "activations/definitions.h"

namespace clikart::ir {

// The sum makes +0 of the -0 that the maximum lets through.
Lane Relu(Lane x) { return AtLeast(0.0f, x) + 0.0f; }

namespace {

Lane Relu6(Lane x, Lane) { return AtMost(6.0f, Relu(x)); }

Lane Relu2(Lane x, Lane) {
  const Lane r = Relu(x);
  return r * r;
}

// The larger of the two is the right one on both sides of zero.
Lane LeakyRelu(Lane x, Lane) { return Max(x * 0.01f, x); }

Lane Hardsigmoid(Lane x) { return AtMost(6.0f, AtLeast(0.0f, x + 3.0f)) / 6.0f; }

// x below -3 counts as -3, so that -inf gives -0 and not inf * 0.
Lane Hardswish(Lane x, Lane) {
  const Lane bounded = AtLeast(-3.0f, x);
  return bounded * Hardsigmoid(bounded);
}

}  // namespace

const ActivationDefinition kReluDefinition = {Activation::kRelu, "relu", 1, "exact",
                                              [](Lane x, Lane) { return Relu(x); }};
const ActivationDefinition kRelu6Definition = {Activation::kRelu6, "relu6", 1, "exact", Relu6};
const ActivationDefinition kRelu2Definition = {Activation::kRelu2, "relu2", 1, "1 ulp", Relu2};
const ActivationDefinition kLeakyReluDefinition = {Activation::kLeakyRelu, "leaky_relu", 1, "1 ulp", LeakyRelu};
const ActivationDefinition kHardsigmoidDefinition = {Activation::kHardsigmoid, "hardsigmoid", 1, "2 ulp",
                                                     [](Lane x, Lane) { return Hardsigmoid(x); }};
const ActivationDefinition kHardswishDefinition = {Activation::kHardswish, "hardswish", 1, "3 ulp", Hardswish};
const ActivationDefinition kRegluDefinition = {Activation::kReglu, "reglu", 2, "1 ulp",
                                               [](Lane gate, Lane up) { return Relu(gate) * up; }};

}  // namespace clikart::ir
