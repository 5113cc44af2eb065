#include "layer_body.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "group_core.h"
#include "prepare_watch.h"
#include "status_macros.h"
#include "tensor_copy.h"
#include "text.h"

namespace clikart {
namespace {

std::atomic<uint64_t> g_epoch{0};

}  // namespace

std::shared_mutex& StructureMutex() {
  static std::shared_mutex* const mutex = new std::shared_mutex;
  return *mutex;
}

uint64_t LoadEpoch::Now() { return g_epoch.load(); }
LoadEpoch::LoadEpoch() { ++g_epoch; }
LoadEpoch::~LoadEpoch() { ++g_epoch; }

LayerBody::LayerBody(LayerTraits traits) : traits_(std::move(traits)) {
  slot_.Store(StateOf(Tensors(traits_.parameters.size())));
}

std::string LayerLabel(const std::string& type, const std::string& name, int64_t inputs, int64_t rows) {
  if (name.empty()) return absl::StrCat(type, "(", inputs, " -> ", rows, ")");
  return absl::StrCat(type, " '", name, "'");
}

std::optional<size_t> LayerBody::Find(std::string_view parameter) const {
  for (size_t i = 0; i < traits_.parameters.size(); ++i) {
    if (traits_.parameters[i].name == parameter) return i;
  }
  return std::nullopt;
}

std::shared_ptr<const BodyState> LayerBody::StateOf(Tensors tensors) const {
  auto state = std::make_shared<BodyState>();
  state->kind = LayerState::kBound;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (traits_.parameters[i].required && !tensors[i].has_value()) state->kind = LayerState::kUnbound;
  }
  state->tensors = std::move(tensors);
  return state;
}

absl::StatusOr<std::shared_ptr<const BodyState>> LayerBody::Packed() {
  ReleaseLater released;
  const std::shared_lock structure(StructureMutex());
  const std::lock_guard lock(pack_mutex_);
  std::shared_ptr<const BodyState> state = slot_.Load();
  switch (state->kind) {
    case LayerState::kPacked:
      return state;
    case LayerState::kUnbound:
      return absl::FailedPreconditionError(
          absl::StrCat(label(), " is unbound: load its parameters (load_state_dict or bind) before a forward"));
    case LayerState::kFused:
      return absl::FailedPreconditionError(
          absl::StrCat(label(), " is part of the group ", state->group->label(),
                       ", which serves it: call the group, or load_state_dict over the layer to dissolve the group"));
    case LayerState::kBound:
      break;
  }
  auto packed = std::make_shared<BodyState>(*state);
  packed->kind = LayerState::kPacked;
  CLIKART_ASSIGN_OR_RETURN(packed->engine, Build(state->tensors, traits_.spec.activation, traits_.residency));
  for (size_t i = 0; i < packed->tensors.size(); ++i) {
    if (packed->tensors[i].has_value() && packed->engine->Holds(traits_.parameters[i].name)) {
      released.Add(*packed->tensors[i]);
    }
  }
  slot_.Store(packed);
  PrepareWatch::TellPacked();
  return packed;
}

absl::StatusOr<std::optional<Tensor>> LayerBody::Read(const BodyState& state, size_t index) const {
  const std::optional<Tensor>& tensor = state.tensors[index];
  const std::string& name = traits_.parameters[index].name;
  if (!tensor.has_value() || state.engine == nullptr || !state.engine->Holds(name)) return tensor;
  CLIKART_ASSIGN_OR_RETURN(Tensor value, state.engine->Read(name, state.first_row, tensor->shape(), tensor->dtype()));
  return std::optional<Tensor>(std::move(value));
}

absl::StatusOr<Tensors> LayerBody::ReadAll(const BodyState& state) const {
  Tensors tensors;
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    CLIKART_ASSIGN_OR_RETURN(std::optional<Tensor> tensor, Read(state, i));
    tensors.push_back(std::move(tensor));
  }
  if (state.engine != nullptr && state.engine->joined()) {
    CLIKART_ASSIGN_OR_RETURN(tensors[0], tensors[0]->Clone());
  }
  return tensors;
}

absl::Status LayerBody::Check(const Tensors&) const { return absl::OkStatus(); }

ir::KernelSpec LayerBody::SpecFor(const Tensors&, ir::Activation activation) const {
  ir::KernelSpec spec = traits_.spec;
  spec.activation = activation;
  return spec;
}

absl::StatusOr<Tensor::Pinned> PinParameter(const LayerBody& body, const Tensors& tensors, size_t index) {
  absl::StatusOr<Tensor::Pinned> pinned = tensors[index]->Pin();
  if (!pinned.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(body.label(), ", ", body.parameters()[index].name, ": ", pinned.status().message()));
  }
  return pinned;
}

absl::StatusOr<std::vector<float>> FloatsOf(const LayerBody& body, const Tensors& tensors, size_t index) {
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, PinParameter(body, tensors, index));
  std::vector<float> values(static_cast<size_t>(tensors[index]->numel()));
  ConvertFloats(pinned.data, tensors[index]->dtype(), reinterpret_cast<std::byte*>(values.data()), DType::kFloat32,
                tensors[index]->numel());
  return values;
}

absl::StatusOr<std::vector<float>> BiasValues(const LayerBody& body, const Tensors& tensors) {
  const std::optional<size_t> index = body.Find("bias");
  if (!index.has_value() || !tensors[*index].has_value()) return std::vector<float>();
  return FloatsOf(body, tensors, *index);
}

ParameterSpec BiasParameter(int64_t rows, DType layer_dtype) {
  return {
      .name = "bias", .shape = {rows}, .dtype = DType::kFloat32, .float_converts = true, .also_taken = {layer_dtype}};
}

absl::StatusOr<Tensor> InNewSlot(const Tensor& tensor) {
  CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, tensor.Pin());
  return Tensor::View(std::make_shared<Storage>(std::move(pinned.memory)), tensor.shape(), tensor.strides(),
                      tensor.dtype(), tensor.offset());
}

}  // namespace clikart
