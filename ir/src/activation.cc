#include "clikart/ir/activation.h"

#include <array>
#include <vector>

#include "activations/definitions.h"
#include "text.h"

namespace clikart::ir {

const ActivationDefinition kNoneDefinition = {Activation::kNone, "none", 1, "exact", [](Lane x, Lane) { return x; }};

namespace {

static_assert(kDefinitions.size() == static_cast<size_t>(Activation::kSitu) + 1,
              "a value of the enum has no definition");

const ActivationDefinition& DefinitionOf(Activation activation) {
  return *kDefinitions[static_cast<size_t>(activation)];
}

std::vector<Program> BuildAll() {
  std::vector<Program> programs;
  for (const ActivationDefinition* definition : kDefinitions) {
    ProgramBuilder builder(definition->inputs);
    const Lane x = builder.Input(0);
    const Lane up = builder.Input(definition->inputs - 1);
    programs.push_back(builder.Build(definition->formula(x, up)));
  }
  return programs;
}

}  // namespace

std::span<const Activation> AllActivations() {
  static const auto all = [] {
    std::array<Activation, kDefinitions.size()> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = kDefinitions[i]->activation;
    return values;
  }();
  return all;
}

std::string_view Name(Activation activation) { return DefinitionOf(activation).name; }

absl::StatusOr<Activation> ParseActivation(std::string_view text) {
  if (text == "swish") return Activation::kSilu;
  std::string names;
  for (const ActivationDefinition* definition : kDefinitions) {
    if (text == definition->name) return definition->activation;
    names += Text(names.empty() ? "" : ", ", definition->name);
  }
  return absl::InvalidArgumentError(Text("unknown activation \"", text, "\"; expected one of ", names));
}

bool IsGated(Activation activation) { return DefinitionOf(activation).inputs == 2; }

std::string_view ErrorBound(Activation activation) { return DefinitionOf(activation).error_bound; }

const Program& ProgramOf(Activation activation) {
  static const std::vector<Program>* const programs = new std::vector<Program>(BuildAll());
  return (*programs)[static_cast<size_t>(activation)];
}

}  // namespace clikart::ir
