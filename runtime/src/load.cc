// State dicts of a whole tree: reading, and loading all or nothing.
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clikart/nn.h"
#include "group_core.h"
#include "layer_body.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

// A layer under one of its names in the tree.
struct Place {
  std::string prefix;  // "encoder.q." or ""
  std::shared_ptr<LayerBody> body;
};

void CollectPlaces(Module& module, const std::string& prefix, std::vector<const Module*>& above,
                   std::vector<Place>& out) {
  for (const Module* ancestor : above) {
    if (ancestor == &module) return;  // a cycle has no further names
  }
  above.push_back(&module);
  if (auto* layer = dynamic_cast<Layer*>(&module); layer != nullptr && layer->body() != nullptr) {
    out.push_back({prefix, layer->body()});
  }
  for (const auto& [name, child] : module.children())
    CollectPlaces(*child, absl::StrCat(prefix, name, "."), above, out);
  above.pop_back();
}

std::vector<Place> PlacesOf(Module& module) {
  std::vector<Place> places;
  std::vector<const Module*> above;
  CollectPlaces(module, "", above, places);
  return places;
}

// What one layer gets.
struct Delivery {
  std::string prefix;
  std::vector<std::optional<Tensor>> given;
  Tensors merged;
};
using Deliveries = std::map<std::shared_ptr<LayerBody>, Delivery>;

bool TakesDType(const ParameterSpec& spec, DType dtype, bool assign) {
  if (dtype == spec.dtype) return true;
  for (DType other : spec.also_taken) {
    if (dtype == other) return true;
  }
  return !assign && spec.float_converts && ir::IsFloat(dtype);
}

std::string ExpectedText(const ParameterSpec& spec, bool assign) {
  std::string text = absl::StrCat(Text(ir::Name(spec.dtype)), ShapeString(spec.shape));
  if (!assign && spec.float_converts) absl::StrAppend(&text, " (or another float dtype)");
  return text;
}

bool ShapeFits(const ParameterSpec& spec, const Tensor& tensor) {
  return spec.single_value ? tensor.numel() == 1 : tensor.shape() == spec.shape;
}

// The layer's own tensor of the given one: converted or copied, or under `assign` a slot over its memory.
absl::StatusOr<Tensor> Own(const ParameterSpec& spec, const Tensor& given, bool assign) {
  if (assign && given.IsContiguous()) {
    CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, given.Pin());
    return Tensor::View(std::make_shared<Storage>(std::move(pinned.memory)), given.shape(), given.strides(),
                        given.dtype(), given.offset());
  }
  bool kept = given.dtype() == spec.dtype;
  for (DType other : spec.also_taken) kept |= given.dtype() == other;
  return kept ? given.Clone() : given.To(spec.dtype);
}

// The places a state dict's names lead to, and what is wrong with it, all in one message.
class Checker {
 public:
  Checker(Module& root, const LoadOptions& options) : options_(options), places_(PlacesOf(root)) {
    for (size_t place = 0; place < places_.size(); ++place) {
      const auto& parameters = places_[place].body->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        names_.try_emplace(absl::StrCat(places_[place].prefix, parameters[i].name), place, i);
      }
    }
  }

  absl::Status Check(const StateDict& state) {
    std::set<std::string> seen;
    for (const auto& [name, tensor] : state) {
      const auto found = names_.find(name);
      if (found == names_.end()) {
        report_.unexpected.push_back(name);
        continue;
      }
      seen.insert(name);
      const auto [place, index] = found->second;
      CheckTensor(name, places_[place], index, tensor);
      Delivery& delivery = deliveries_[places_[place].body];
      if (delivery.given.empty()) {
        delivery.prefix = places_[place].prefix;
        delivery.given.resize(places_[place].body->parameters().size());
      }
      delivery.given[index] = tensor;
    }
    for (const Place& place : places_) {
      for (const ParameterSpec& spec : place.body->parameters()) {
        std::string name = absl::StrCat(place.prefix, spec.name);
        if (spec.required && !seen.contains(name)) report_.missing.push_back(std::move(name));
      }
    }
    if (options_.strict && !report_.missing.empty()) {
      problems_.push_back(absl::StrCat("missing: ", absl::StrJoin(report_.missing, ", ")));
    }
    if (options_.strict && !report_.unexpected.empty()) {
      problems_.push_back(absl::StrCat("unexpected: ", absl::StrJoin(report_.unexpected, ", ")));
    }
    return Verdict();
  }

  // Converts or copies; the given tensors' own memory may be gone, so this may fail too.
  absl::Status Convert() {
    for (auto& [body, delivery] : deliveries_) {
      for (size_t i = 0; i < delivery.given.size(); ++i) {
        std::optional<Tensor>& tensor = delivery.given[i];
        if (!tensor.has_value()) continue;
        absl::StatusOr<Tensor> own = Own(body->parameters()[i], *tensor, options_.assign);
        if (own.ok()) {
          tensor = *std::move(own);
        } else {
          Problem(absl::StrCat(delivery.prefix, body->parameters()[i].name), *body, own.status().message());
        }
      }
    }
    return Verdict();
  }

  // Under StructureMutex(): adds what stays to what was given, and checks the values.
  absl::Status Merge() {
    for (auto& [body, delivery] : deliveries_) {
      const std::shared_ptr<const BodyState> state = body->state();
      const auto& parameters = body->parameters();
      bool complete = true, weight = delivery.given[0].has_value();
      for (size_t i = 0; i < parameters.size(); ++i)
        complete &= !parameters[i].required || delivery.given[i].has_value();
      delivery.merged = delivery.given;
      Tensors kept = state->tensors;
      if (!weight && state->kind != LayerState::kUnbound) {
        CLIKART_ASSIGN_OR_RETURN(kept, body->ReadAll(*state));
      }
      for (size_t i = 0; i < parameters.size(); ++i) {
        // A whole new set of parameters replaces optional ones that it does not bring.
        if (!delivery.merged[i].has_value() && !complete) delivery.merged[i] = kept[i];
      }
      const absl::Status values = body->Check(delivery.merged);
      if (!values.ok()) problems_.push_back(absl::StrCat(delivery.prefix, values.message(), " (", body->label(), ")"));
    }
    return Verdict();
  }

  Deliveries& deliveries() { return deliveries_; }
  LoadReport TakeReport() { return std::move(report_); }

 private:
  void Problem(const std::string& name, const LayerBody& body, absl::string_view what) {
    problems_.push_back(absl::StrCat(name, name.empty() ? "" : ": ", body.label(), ": ", what));
  }

  void CheckTensor(const std::string& name, const Place& place, size_t index, const Tensor& tensor) {
    const ParameterSpec& spec = place.body->parameters()[index];
    if (ShapeFits(spec, tensor) && TakesDType(spec, tensor.dtype(), options_.assign)) return;
    Problem(name, *place.body,
            absl::StrCat("found ", tensor.ToString(), ", expected ", ExpectedText(spec, options_.assign)));
  }

  absl::Status Verdict() const {
    if (problems_.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("cannot load the state dict, nothing was changed:\n  ", absl::StrJoin(problems_, "\n  ")));
  }

  const LoadOptions options_;
  const std::vector<Place> places_;
  absl::flat_hash_map<std::string, std::pair<size_t, size_t>> names_;
  Deliveries deliveries_;
  LoadReport report_;
  std::vector<std::string> problems_;
};

// Groups that a delivery reaches, and the other parts of theirs with tensors of their own.
struct Dissolution {
  std::set<std::shared_ptr<GroupCore>> groups;
  std::vector<std::pair<std::shared_ptr<LayerBody>, Tensors>> others;
};

absl::StatusOr<Dissolution> PlanDissolution(const Deliveries& deliveries) {
  Dissolution plan;
  for (const auto& [body, delivery] : deliveries) {
    if (std::shared_ptr<GroupCore> group = body->state()->group; group != nullptr) plan.groups.insert(std::move(group));
  }
  for (const auto& group : plan.groups) {
    for (const std::shared_ptr<LayerBody>& part : group->parts()) {
      if (deliveries.contains(part)) continue;
      CLIKART_ASSIGN_OR_RETURN(Tensors own, part->ReadAll(*part->state()));
      plan.others.emplace_back(part, std::move(own));
    }
  }
  return plan;
}

}  // namespace

absl::StatusOr<StateDict> Module::GetStateDict(std::string_view prefix) {
  StateDict state;
  const std::string start = prefix.empty() ? "" : absl::StrCat(Text(prefix), ".");
  for (const Place& place : PlacesOf(*this)) {
    const std::shared_ptr<const BodyState> now = place.body->state();
    for (size_t i = 0; i < place.body->parameters().size(); ++i) {
      CLIKART_ASSIGN_OR_RETURN(std::optional<Tensor> tensor, place.body->Read(*now, i));
      if (!tensor.has_value()) continue;
      state.emplace_back(absl::StrCat(start, place.prefix, place.body->parameters()[i].name), *std::move(tensor));
    }
  }
  return state;
}

absl::StatusOr<LoadReport> Module::LoadStateDict(const StateDict& state, const LoadOptions& options) {
  Checker checker(*this, options);
  CLIKART_RETURN_IF_ERROR(checker.Check(state));
  CLIKART_RETURN_IF_ERROR(checker.Convert());
  // Old states go after the lock: freeing may run an owner's code (see ReleaseLater).
  std::vector<std::shared_ptr<const BodyState>> old;
  const std::unique_lock structure(StructureMutex());
  CLIKART_RETURN_IF_ERROR(checker.Merge());
  CLIKART_ASSIGN_OR_RETURN(Dissolution dissolution, PlanDissolution(checker.deliveries()));
  // Nothing fails from here on.
  for (const auto& [body, delivery] : checker.deliveries()) old.push_back(body->state());
  for (const auto& [body, tensors] : dissolution.others) old.push_back(body->state());
  const LoadEpoch epoch;
  for (auto& [body, delivery] : checker.deliveries()) body->Replace(body->StateOf(std::move(delivery.merged)));
  for (auto& [body, tensors] : dissolution.others) body->Replace(body->StateOf(std::move(tensors)));
  for (const auto& group : dissolution.groups) group->Dissolve();
  return checker.TakeReport();
}

}  // namespace clikart
