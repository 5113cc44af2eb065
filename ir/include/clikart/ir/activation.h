// The activations by name, each as a Program. docs/adding-an-activation.md leads through adding one.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "clikart/ir/program.h"

namespace clikart::ir {

enum class Activation : uint8_t {
  kNone,
  // pointwise
  kRelu,
  kRelu6,
  kLeakyRelu,
  kGelu,
  kGeluTanh,
  kQuickGelu,
  kSilu,
  kSigmoid,
  kTanh,
  kHardswish,
  kHardsigmoid,
  kElu,
  kSoftplus,
  kMish,
  kRelu2,
  // gated: value 0 the gate, value 1 the up projection
  kSwiglu,
  kGeglu,
  kReglu,
  kSitu,
};

// Every activation, in the enum's order, kNone first.
std::span<const Activation> AllActivations();
std::string_view Name(Activation activation);  // "relu", ..., "none"
// Exact spellings of spec/api.md; "swish" is silu. The error lists the valid names.
absl::StatusOr<Activation> ParseActivation(std::string_view text);
bool IsGated(Activation activation);
// Documented bound of |result - exact|, for docs and tests: "4 ulp", ...
std::string_view ErrorBound(Activation activation);
// The program, built once. kNone is the identity.
const Program& ProgramOf(Activation activation);

}  // namespace clikart::ir
