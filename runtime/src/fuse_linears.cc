// fuse_linears: one kernel over the concatenated rows of linears, or the parts side by side.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "fuse.h"
#include "group_core.h"
#include "linear_body.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

constexpr char kCaller[] = "fuse_linears";

class LinearGroupLayer final : public LinearGroup {
 public:
  LinearGroupLayer(GroupServer server, std::string name)
      : LinearGroup(std::move(name), nullptr), server_(std::move(server)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override { return server_.ForwardRows(x); }
  int64_t in_features() const override { return server_.parts()[0]->body()->traits().inputs; }
  int64_t out_features() const override { return server_.core().traits().width; }
  bool has_bias() const override {
    return std::any_of(server_.parts().begin(), server_.parts().end(),
                       [](const auto& part) { return part->body()->Find("bias").has_value(); });
  }
  DType dtype() const override {
    const ir::KernelSpec& spec = server_.parts()[0]->body()->traits().spec;
    return spec.scheme.has_value() ? DType::kFloat32 : spec.w;
  }
  Activation activation() const override { return server_.core().traits().activation; }
  Residency residency() const override { return server_.core().traits().residency; }
  std::vector<std::shared_ptr<Layer>> parts() const override { return server_.parts(); }
  std::vector<int64_t> split_sizes() const override { return server_.split_sizes(); }
  bool fused() const override { return server_.core().fused(); }
  std::string ToString() const override { return server_.ToString(TypeName()); }
  LayerState state() const override { return LayerState::kPacked; }
  std::string Explain() const override { return server_.Explain("Linear group"); }
  absl::StatusOr<std::vector<std::string>> Prepare(const Shape& shape, DType dtype) override {
    return server_.Prepare(shape, dtype);
  }

 private:
  const GroupServer server_;
};

std::string OrderText(ir::InputOrder order) {
  switch (order) {
    case ir::InputOrder::kNatural:
      return "no weight_g_idx that moves inputs";
    case ir::InputOrder::kSorted:
      return "a weight_g_idx";
    case ir::InputOrder::kUneven:
      break;
  }
  return "a weight_g_idx with uneven groups";
}

std::vector<int64_t> GroupBegins(const FusePart& part) {
  const auto order = static_cast<const QLinearWoQBody&>(*part.body).Order(part.state->tensors);
  return order.ok() ? order->begins : std::vector<int64_t>();
}

// Why no one kernel serves the parts; empty when one does.
std::vector<GroupReason> ReasonsAgainst(std::span<const FusePart> parts) {
  std::vector<GroupReason> reasons;
  const LayerBody& first = *parts[0].body;
  const auto differ = [&](const char* name, const LayerBody& other, std::string found, std::string expected) {
    reasons.push_back({name, absl::StrCat(other.label(), " has ", found, ", ", first.label(), " ", expected)});
  };
  const ir::KernelSpec spec = first.SpecFor(parts[0].state->tensors, Activation::kNone);
  for (const FusePart& part : parts.subspan(1)) {
    const LayerBody& body = *part.body;
    const ir::KernelSpec other = body.SpecFor(part.state->tensors, Activation::kNone);
    if (other.k != spec.k) {
      differ("input_widths", body, absl::StrCat(other.k, " inputs"), absl::StrCat(spec.k));
    }
    if (other.scheme.has_value() != spec.scheme.has_value()) {
      differ("mixed_layer_kinds", body, other.scheme.has_value() ? "quantized weights" : "float weights",
             spec.scheme.has_value() ? "quantized ones" : "float ones");
    } else if (other.scheme != spec.scheme) {
      differ("quantization_schemes", body, other.scheme->ToString(), spec.scheme->ToString());
    } else if (other.w != spec.w) {
      differ("dtypes", body, std::string(ir::Name(other.w)), std::string(ir::Name(spec.w)));
    } else if (other.contraction != spec.contraction) {
      differ("compute_kinds", body, "another compute", "its own");
    } else if (other.order != spec.order) {
      differ("activation_order", body, OrderText(other.order), OrderText(spec.order));
    } else if (other.order == ir::InputOrder::kUneven && GroupBegins(part) != GroupBegins(parts[0])) {
      differ("group_sizes", body, "a weight_g_idx with groups of other sizes", "its own");
    }
  }
  return reasons;
}

// The kernel's spec over all parts.
ir::KernelSpec GroupSpec(std::span<const FusePart> parts, const GroupCore::Traits& traits) {
  ir::KernelSpec spec = parts[0].body->SpecFor(parts[0].state->tensors, traits.activation);
  spec.n = traits.width;
  spec.bias = ir::BiasKind::kNone;
  for (const FusePart& part : parts) {
    if (part.body->Find("bias").has_value()) spec.bias = ir::BiasKind::kFloat32;
  }
  return spec;
}

absl::Status ServeFloatRows(std::span<const FusePart> parts, Residency residency, Engine& engine) {
  std::vector<WeightRows> rows;
  for (const FusePart& part : parts) {
    CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned weight, PinParameter(*part.body, part.state->tensors, 0));
    const LayerTraits& traits = part.body->traits();
    rows.push_back(RowsOfWeight(weight.data, traits.rows, 1, traits.inputs, traits.spec.w));
  }
  if (residency == Residency::kPacked) {
    const std::vector<WeightRows> slices[] = {std::move(rows)};
    return engine.Pack(slices);
  }
  std::vector<Tensor> weights;
  for (const FusePart& part : parts) weights.push_back(*part.state->tensors[0]);
  CLIKART_ASSIGN_OR_RETURN(Tensor joined, Concat(weights, 0));
  CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, joined.Pin());
  const ir::KernelSpec& spec = engine.spec();
  engine.ServePerCall({RowsOfWeight(pinned.data, spec.n, 1, spec.k, spec.w)}, {std::move(pinned.memory)});
  engine.SetJoined(std::move(joined));
  return absl::OkStatus();
}

absl::Status ServeQuantizedRows(std::span<const FusePart> parts, Residency residency, Engine& engine) {
  std::vector<CodePart> codes;
  std::vector<std::shared_ptr<Memory>> memory;
  for (const FusePart& part : parts) {
    const auto& body = static_cast<const QLinearWoQBody&>(*part.body);
    CLIKART_ASSIGN_OR_RETURN(CodePart own, body.Part(part.state->tensors, memory));
    codes.push_back(std::move(own));
  }
  return ServeCodes(std::move(codes), std::move(memory), residency, engine);
}

absl::StatusOr<FuseResult> BuildFused(std::span<const FusePart> parts, const GroupCore::Traits& traits) {
  auto engine = std::make_shared<Engine>(GroupSpec(parts, traits));
  CLIKART_RETURN_IF_ERROR(engine->spec().scheme.has_value() ? ServeQuantizedRows(parts, traits.residency, *engine)
                                                            : ServeFloatRows(parts, traits.residency, *engine));
  if (engine->spec().bias != ir::BiasKind::kNone) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, ConcatenatedBias(parts));
    engine->SetBias(bias);
  }
  return ShareEngine(parts, std::move(engine));
}

absl::Status CheckGate(std::span<const FusePart> parts, const GroupCore::Traits& traits) {
  if (!ir::IsGated(traits.activation)) return absl::OkStatus();
  const absl::string_view activation = Text(ir::Name(traits.activation));
  for (const FusePart& part : parts) {
    if (!part.body->Find("bias").has_value()) continue;
    return absl::FailedPreconditionError(absl::StrCat(kCaller, ": the gated activation '", activation,
                                                      "' needs parts without biases, but ", part.body->label(),
                                                      " has one"));
  }
  if (traits.width % 2 == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(kCaller, ": the gated activation '", activation,
                                                    "' halves the concatenated width; expected an even one, found ",
                                                    traits.width));
}

}  // namespace

absl::StatusOr<std::shared_ptr<LinearGroup>> FuseLinears(std::span<const std::shared_ptr<Layer>> layers,
                                                         const FuseOptions& options) {
  for (const auto& layer : layers) {
    if (dynamic_cast<const Linear*>(layer.get()) == nullptr &&
        dynamic_cast<const QLinearWoQ*>(layer.get()) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(kCaller, ": expected Linear or QLinearWoQ layers, found ",
                                                     layer == nullptr ? "null" : layer->TypeName()));
    }
  }
  if (layers.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(kCaller, ": expected two or more layers, found ", layers.size()));
  }
  ReleaseLater released;
  const std::unique_lock structure(StructureMutex());
  CLIKART_ASSIGN_OR_RETURN(const std::vector<FusePart> parts, TakeParts(kCaller, layers));
  GroupCore::Traits traits;
  traits.name = options.name.value_or("");
  CLIKART_ASSIGN_OR_RETURN(traits.activation, CommonActivation(kCaller, parts, options.activation));
  traits.residency = parts[0].body->traits().residency;
  for (const FusePart& part : parts) {
    traits.width += part.body->traits().rows;
    if (part.body->traits().residency != traits.residency) traits.residency = Residency::kPacked;
  }
  CLIKART_RETURN_IF_ERROR(CheckGate(parts, traits));
  traits.reasons = ReasonsAgainst(parts);
  CLIKART_RETURN_IF_ERROR(ReportReasons(kCaller, traits));
  const Activation unit = ir::IsGated(traits.activation) ? Activation::kNone : traits.activation;
  CLIKART_ASSIGN_OR_RETURN(FuseResult result, traits.reasons.empty() ? BuildFused(parts, traits)
                                                                     : BuildSideBySide(parts, unit, traits.residency));
  std::shared_ptr<GroupCore> core = CommitGroup(std::move(traits), parts, std::move(result), released);
  GroupServer server(std::move(core), {layers.begin(), layers.end()});
  return std::make_shared<LinearGroupLayer>(std::move(server), options.name.value_or(""));
}

}  // namespace clikart
