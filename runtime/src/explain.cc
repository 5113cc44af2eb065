// explain() and the printed form of layers and groups.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clikart/nn.h"
#include "group_core.h"
#include "layer_body.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

std::string KernelText(const Kernel& kernel, const std::string& indent) {
  std::string text = absl::StrFormat("%skernel %s: emitter %s, isa %s, %d bytes of code, %.3f ms to emit\n", indent,
                                     kernel.signature, kernel.emitter, std::string(codegen::Name(kernel.isa)),
                                     kernel.code_bytes, kernel.jit_seconds * 1e3);
  for (const codegen::Rejection& rejection : kernel.rejections) {
    absl::StrAppend(&text, indent, "  passed over: ", Text(codegen::Name(rejection.reason)), " (",
                    Text(codegen::Describe(rejection.reason)), rejection.detail.empty() ? "" : ": ", rejection.detail,
                    ")\n");
  }
  return text;
}

// The kernels of the set; where none was asked for yet, the one for `x`.
std::string KernelsText(KernelSet& kernels, DType x, DType y, const std::string& indent) {
  if (kernels.base().n == 0) return absl::StrCat(indent, "no kernel: it has no outputs\n");
  const absl::Status status = kernels.Compiled().empty() ? kernels.Get(x, y).status() : absl::OkStatus();
  if (!status.ok()) return absl::StrCat(indent, "no kernel: ", status.message(), "\n");
  std::string text;
  for (const auto& kernel : kernels.Compiled()) text += KernelText(*kernel, indent);
  return text;
}

// The input dtype to explain with when nothing has run.
DType NaturalInput(const ir::KernelSpec& spec) {
  if (spec.contraction == ir::Contraction::kInteger) return DType::kInt8;
  return ir::IsFloat(spec.w) ? spec.w : DType::kFloat32;
}

// What a convolution of many small groups costs: nothing is said where most lanes have work.
std::string LanesText(int64_t slices, int64_t outputs, const std::string& indent) {
  if (slices == 1 || outputs == 0 || outputs >= ir::kPanelLanes / 2) return "";
  return absl::StrCat(indent, "slow: ", slices, " groups, each a contraction of its own that uses ", outputs, " of ",
                      ir::kPanelLanes, " lanes\n");
}

}  // namespace

std::string Layer::ToString() const {
  const LayerTraits& traits = body_->traits();
  std::string text = absl::StrCat(traits.type, "(", traits.inputs, ", ", traits.rows);
  absl::StrAppend(&text, ", bias=", body_->Find("bias").has_value() ? "True" : "False");
  if (traits.spec.scheme.has_value()) {
    absl::StrAppend(&text, ", scheme=", traits.spec.scheme->ToString());
  } else {
    absl::StrAppend(&text, ", dtype=", Text(ir::Name(traits.spec.w)));
  }
  if (traits.spec.activation != Activation::kNone) {
    absl::StrAppend(&text, ", activation=", Text(ir::Name(traits.spec.activation)));
  }
  if (!traits.detail.empty()) absl::StrAppend(&text, ", ", traits.detail);
  if (!name_.empty()) absl::StrAppend(&text, ", name='", name_, "'");
  return text + ")";
}

std::string GroupServer::ToString(const std::string& type) const {
  const GroupCore::Traits& traits = core_->traits();
  std::string text = absl::StrCat(type, "(", parts_[0]->body()->traits().inputs, ", ", traits.width, ", group of ");
  for (size_t i = 0; i < parts_.size(); ++i) {
    const LayerTraits& part = parts_[i]->body()->traits();
    absl::StrAppend(&text, i == 0 ? "" : " + ", part.name.empty() ? absl::StrCat(part.rows) : part.name);
  }
  if (traits.activation != Activation::kNone) {
    absl::StrAppend(&text, ", activation=", Text(ir::Name(traits.activation)));
  }
  if (!traits.name.empty()) absl::StrAppend(&text, ", name='", traits.name, "'");
  return text + ")";
}

std::string Layer::Explain() const {
  const std::shared_ptr<const BodyState> state = body_->state();
  const LayerTraits& traits = body_->traits();
  std::string text =
      absl::StrCat(ToString(), ": ", Text(Name(state->kind)), ", residency ", Text(Name(traits.residency)), "\n");
  switch (state->kind) {
    case LayerState::kUnbound:
      return text + "  no kernel yet: its parameters are not loaded\n";
    case LayerState::kFused:
      return absl::StrCat(text, "  served by the group ", state->group->label(), "\n");
    case LayerState::kBound: {
      KernelSet kernels(body_->SpecFor(state->tensors, traits.spec.activation));
      const DType x = NaturalInput(kernels.base());
      return absl::StrCat(text, "  packs on its first forward\n", LanesText(traits.slices, traits.spec.n, "  "),
                          KernelsText(kernels, x, kernels.OutputFor(x), "  "));
    }
    case LayerState::kPacked:
      break;
  }
  Engine& engine = *state->engine;
  const DType x = NaturalInput(engine.spec());
  absl::StrAppend(&text, "  weights: ", engine.weight_bytes(), " bytes\n");
  return absl::StrCat(text, LanesText(engine.slices(), engine.outputs(), "  "),
                      KernelsText(engine.kernels(), x, engine.kernels().OutputFor(x), "  "));
}

std::string GroupServer::Explain(const std::string& type) const {
  const GroupCore::Traits& traits = core_->traits();
  const bool dissolved = core_->plan() == nullptr;
  std::string text = absl::StrCat(type, " ", core_->label(), ": ", parts_.size(), " parts, ", traits.width, " outputs");
  if (traits.activation != Activation::kNone) absl::StrAppend(&text, ", ", Text(ir::Name(traits.activation)));
  absl::StrAppend(&text, ", residency ", Text(Name(traits.residency)), "\n");
  for (const auto& part : parts_) absl::StrAppend(&text, "  part ", part->ToString(), "\n");
  if (dissolved) {
    text += "side by side: a load over a part dissolved the group\n";
  } else if (!traits.reasons.empty()) {
    for (const GroupReason& reason : traits.reasons) {
      absl::StrAppend(&text, "side by side: ", reason.name, " (", reason.detail, ")\n");
    }
  } else {
    text += "fused: one kernel serves all parts\n";
  }
  const absl::StatusOr<std::shared_ptr<const GroupPlan>> plan = Plan();
  if (!plan.ok()) return absl::StrCat(text, "  no kernel: ", plan.status().message(), "\n");
  for (const GroupUnit& unit : (*plan)->units) {
    const DType x = NaturalInput(unit.engine->spec());
    text += LanesText(unit.engine->slices(), unit.engine->outputs(), "  ");
    text += KernelsText(*unit.kernels, x, core_->GateAfter(**plan) ? DType::kFloat32 : x, "  ");
  }
  return text;
}

}  // namespace clikart
