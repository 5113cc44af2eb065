// Every activation's definition; one file a family beside this one, one line here.
#pragma once

#include <string_view>

#include "clikart/ir/activation.h"
#include "program_builder.h"

namespace clikart::ir {

struct ActivationDefinition {
  Activation activation;
  std::string_view name;         // as spec'd to users
  int inputs;                    // 1 pointwise, 2 gated
  std::string_view error_bound;  // of |result - exact|
  // Writes the formula: the lanes are the inputs (of a pointwise one, both are input 0).
  Lane (*formula)(Lane x, Lane up);
};

extern const ActivationDefinition kReluDefinition, kRelu6Definition, kRelu2Definition, kLeakyReluDefinition;
extern const ActivationDefinition kHardsigmoidDefinition, kHardswishDefinition;
extern const ActivationDefinition kRegluDefinition;
extern const ActivationDefinition kSigmoidDefinition, kSiluDefinition, kQuickGeluDefinition, kSwigluDefinition;
extern const ActivationDefinition kGeluTanhDefinition, kTanhDefinition, kEluDefinition;
extern const ActivationDefinition kSoftplusDefinition, kMishDefinition;
extern const ActivationDefinition kGeluDefinition, kGegluDefinition;
extern const ActivationDefinition kSituDefinition;

}  // namespace clikart::ir
