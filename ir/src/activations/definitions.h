// Every activation's definition: one file a family beside this one, and two lines here.
#pragma once

#include <array>
#include <string_view>

#include "clikart/ir/activation.h"
#include "program_builder.h"

namespace clikart::ir {

struct ActivationDefinition {
  Activation activation;
  std::string_view name;         // what users write
  int inputs;                    // 1 pointwise, 2 gated
  std::string_view error_bound;  // of |result - exact|
  // Writes the formula: the lanes are the inputs (of a pointwise one, both are input 0).
  Lane (*formula)(Lane x, Lane up);
};

extern const ActivationDefinition kNoneDefinition;
extern const ActivationDefinition kReluDefinition, kRelu6Definition, kRelu2Definition, kLeakyReluDefinition;
extern const ActivationDefinition kHardsigmoidDefinition, kHardswishDefinition;
extern const ActivationDefinition kRegluDefinition;
extern const ActivationDefinition kSigmoidDefinition, kSiluDefinition, kQuickGeluDefinition, kSwigluDefinition;
extern const ActivationDefinition kGeluTanhDefinition, kTanhDefinition, kEluDefinition;
extern const ActivationDefinition kSoftplusDefinition, kMishDefinition;
extern const ActivationDefinition kGeluDefinition, kGegluDefinition;
extern const ActivationDefinition kSituDefinition;

// In the enum's order.
inline constexpr std::array kDefinitions = {
    &kNoneDefinition,
    // pointwise
    &kReluDefinition, &kRelu6Definition, &kLeakyReluDefinition, &kGeluDefinition, &kGeluTanhDefinition,
    &kQuickGeluDefinition, &kSiluDefinition, &kSigmoidDefinition, &kTanhDefinition, &kHardswishDefinition,
    &kHardsigmoidDefinition, &kEluDefinition, &kSoftplusDefinition, &kMishDefinition, &kRelu2Definition,
    // gated
    &kSwigluDefinition, &kGegluDefinition, &kRegluDefinition, &kSituDefinition};

}  // namespace clikart::ir
