#include "fuse.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "environment.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

// Adds the part's fused state over `engine` to `result`.
absl::Status AddState(const FusePart& part, std::shared_ptr<Engine> engine, int64_t first_row, FuseResult& result) {
  auto state = std::make_shared<BodyState>();
  state->kind = LayerState::kFused;
  state->first_row = first_row;
  state->tensors = part.state->tensors;
  for (size_t i = 0; i < state->tensors.size(); ++i) {
    if (!state->tensors[i].has_value()) continue;
    result.replaced.push_back(*state->tensors[i]);
    if (engine->Holds(part.body->parameters()[i].name)) continue;
    CLIKART_ASSIGN_OR_RETURN(state->tensors[i], InNewSlot(*state->tensors[i]));
  }
  state->engine = std::move(engine);
  result.states.push_back(std::move(state));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FusePart>> TakeParts(const std::string& caller,
                                                std::span<const std::shared_ptr<Layer>> layers) {
  std::vector<FusePart> parts;
  for (const auto& layer : layers) {
    if (dynamic_cast<const Group*>(layer.get()) != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(caller, ": ", layer->ToString(), " is a group itself; expected layers that are not"));
    }
    LayerBody& body = *layer->body();
    for (const FusePart& part : parts) {
      if (part.body == &body) {
        return absl::FailedPreconditionError(absl::StrCat(caller, ": ", body.label(), " is given twice"));
      }
    }
    parts.push_back({layer, &body, body.state()});
    const BodyState& state = *parts.back().state;
    switch (state.kind) {
      case LayerState::kBound:
        break;
      case LayerState::kUnbound:
        return absl::FailedPreconditionError(
            absl::StrCat(caller, ": ", body.label(), " is unbound; expected a layer whose parameters are loaded"));
      case LayerState::kPacked:
        return absl::FailedPreconditionError(absl::StrCat(caller, ": ", body.label(),
                                                          " is already packed; fuse before the first forward, or load "
                                                          "its parameters again"));
      case LayerState::kFused:
        return absl::FailedPreconditionError(
            absl::StrCat(caller, ": ", body.label(), " already belongs to the group ", state.group->label()));
    }
  }
  return parts;
}

absl::StatusOr<Activation> CommonActivation(const std::string& caller, std::span<const FusePart> parts,
                                            Activation asked) {
  const Activation first = parts[0].body->traits().spec.activation;
  for (const FusePart& part : parts) {
    const Activation own = part.body->traits().spec.activation;
    if (ir::IsGated(own)) {
      return absl::FailedPreconditionError(absl::StrCat(caller, ": ", part.body->label(),
                                                        " applies the gated activation '", Text(ir::Name(own)),
                                                        "'; give it to the group instead"));
    }
    if (own != first) {
      return absl::FailedPreconditionError(
          absl::StrCat(caller, ": the parts' activations disagree: ", part.body->label(), " applies '",
                       Text(ir::Name(own)), "', ", parts[0].body->label(), " '", Text(ir::Name(first)), "'"));
    }
  }
  if (first == Activation::kNone) return asked;
  if (asked == Activation::kNone || asked == first) return first;
  return absl::FailedPreconditionError(absl::StrCat(caller, ": the parts apply '", Text(ir::Name(first)),
                                                    "', but the group was asked for '", Text(ir::Name(asked)), "'"));
}

absl::StatusOr<FuseResult> BuildSideBySide(std::span<const FusePart> parts, Activation activation,
                                           Residency residency) {
  FuseResult result;
  int64_t column = 0;
  for (const FusePart& part : parts) {
    CLIKART_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                             part.body->Build(part.state->tensors, activation, residency));
    result.plan->units.push_back({engine, &engine->kernels(), part.body, column});
    column += part.body->traits().rows;
    CLIKART_RETURN_IF_ERROR(AddState(part, std::move(engine), 0, result));
  }
  return result;
}

absl::StatusOr<FuseResult> ShareEngine(std::span<const FusePart> parts, std::shared_ptr<Engine> engine) {
  FuseResult result;
  result.plan->units.push_back({engine, &engine->kernels(), parts[0].body, 0});
  int64_t row = 0;
  for (const FusePart& part : parts) {
    CLIKART_RETURN_IF_ERROR(AddState(part, engine, row, result));
    row += part.body->traits().rows;
  }
  return result;
}

absl::StatusOr<std::vector<float>> ConcatenatedBias(std::span<const FusePart> parts) {
  std::vector<float> values;
  for (const FusePart& part : parts) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> own, BiasValues(*part.body, part.state->tensors));
    const size_t rows = static_cast<size_t>(part.body->traits().rows);
    if (own.empty()) {
      values.insert(values.end(), rows, -0.0f);
    } else {
      values.insert(values.end(), own.begin(), own.end());
    }
  }
  return values;
}

absl::Status ReportReasons(const std::string& caller, const GroupCore::Traits& traits) {
  const absl::StatusOr<Environment>& environment = Environment::Get();
  for (const GroupReason& reason : traits.reasons) {
    const std::string message = absl::StrCat(caller, traits.name.empty() ? "" : absl::StrCat(" '", traits.name, "'"),
                                             ": the parts run side by side: ", reason.name, " (", reason.detail, ")");
    KernelCache::Instance().CountRejection(reason.name, message);
    if (environment.ok() && environment->strict) {
      return absl::FailedPreconditionError(absl::StrCat(message, ", which CLIKART_STRICT=1 forbids"));
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<GroupCore> CommitGroup(GroupCore::Traits traits, std::span<const FusePart> parts, FuseResult result,
                                       ReleaseLater& released) {
  std::vector<std::shared_ptr<LayerBody>> bodies;
  for (const FusePart& part : parts) bodies.push_back(part.layer->body());
  auto core = std::make_shared<GroupCore>(std::move(traits), bodies, std::move(result.plan));
  for (size_t i = 0; i < bodies.size(); ++i) {
    result.states[i]->group = core;
    bodies[i]->Replace(std::move(result.states[i]));
  }
  for (Tensor& tensor : result.replaced) released.Add(std::move(tensor));
  return core;
}

}  // namespace clikart
