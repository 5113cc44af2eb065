// fuse_convs: one convolution over the concatenated kernels, or the parts side by side.
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "conv_body.h"
#include "fuse.h"
#include "group_core.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

constexpr char kCaller[] = "fuse_convs";

class ConvGroupLayer final : public ConvGroup {
 public:
  ConvGroupLayer(GroupServer server, ConvOptions options)
      : ConvGroup(options.name, nullptr), server_(std::move(server)), options_(std::move(options)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override { return server_.ForwardImages(x); }
  int64_t in_channels() const override { return server_.parts()[0]->body()->traits().inputs; }
  int64_t out_channels() const override { return server_.core().traits().width; }
  const ConvOptions& options() const override { return options_; }
  std::vector<std::shared_ptr<Layer>> parts() const override { return server_.parts(); }
  std::vector<int64_t> split_sizes() const override { return server_.split_sizes(); }
  bool fused() const override { return server_.core().fused(); }
  Residency residency() const override { return server_.core().traits().residency; }
  std::string ToString() const override { return server_.ToString(TypeName()); }
  LayerState state() const override { return LayerState::kPacked; }
  std::string Explain() const override { return server_.Explain("Conv group"); }
  absl::StatusOr<std::vector<std::string>> Prepare(const Shape& shape, DType dtype) override {
    return server_.Prepare(shape, dtype);
  }

 private:
  const GroupServer server_;
  const ConvOptions options_;  // of the first part, with the group's channels, bias and activation
};

std::vector<GroupReason> ReasonsAgainst(std::span<const FusePart> parts) {
  std::vector<GroupReason> reasons;
  const LayerBody& first = *parts[0].body;
  for (const FusePart& part : parts) {
    if (part.body->traits().groups == 1) continue;
    reasons.push_back(
        {"grouped_convolution", absl::StrCat(part.body->label(), " has groups=", part.body->traits().groups)});
  }
  for (const FusePart& part : parts.subspan(1)) {
    const LayerBody& body = *part.body;
    const LayerTraits &own = body.traits(), &expected = first.traits();
    if (!own.grid->SameGeometry(*expected.grid)) {
      reasons.push_back(
          {"geometry",
           absl::StrCat(body.label(), " has another kernel, stride, dilation or padding than ", first.label())});
    }
    if (own.inputs != expected.inputs) {
      reasons.push_back({"input_widths", absl::StrCat(body.label(), " has ", own.inputs, " input channels, ",
                                                      first.label(), " ", expected.inputs)});
    }
    if (own.spec.w != expected.spec.w) {
      reasons.push_back({"dtypes", absl::StrCat(body.label(), " has ", Text(ir::Name(own.spec.w)), ", ", first.label(),
                                                " ", Text(ir::Name(expected.spec.w)))});
    }
    if (own.spec.bias != expected.spec.bias) {
      reasons.push_back({"mixed_biases", absl::StrCat("of ", body.label(), " and ", first.label(), " one has a bias")});
    }
  }
  return reasons;
}

absl::StatusOr<FuseResult> BuildFused(std::span<const FusePart> parts, const GroupCore::Traits& traits) {
  ir::KernelSpec spec = parts[0].body->SpecFor(parts[0].state->tensors, traits.activation);
  spec.n = traits.width;
  auto engine = std::make_shared<Engine>(spec);
  std::vector<std::vector<WeightRows>> slices(1);
  for (const FusePart& part : parts) {
    const auto& body = static_cast<const ConvBody&>(*part.body);
    CLIKART_ASSIGN_OR_RETURN(const std::vector<std::vector<WeightRows>> own, body.SliceRows(part.state->tensors));
    slices[0].push_back(own[0][0]);
  }
  CLIKART_RETURN_IF_ERROR(engine->Pack(slices));
  if (engine->spec().bias != ir::BiasKind::kNone) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, ConcatenatedBias(parts));
    engine->SetBias(bias);
  }
  return ShareEngine(parts, std::move(engine));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ConvGroup>> FuseConvs(std::span<const std::shared_ptr<Conv>> layers,
                                                     const FuseOptions& options) {
  for (const auto& layer : layers) {
    if (layer == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(kCaller, ": expected Conv layers, found null"));
  }
  if (layers.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(kCaller, ": expected two or more layers, found ", layers.size()));
  }
  const std::vector<std::shared_ptr<Layer>> all(layers.begin(), layers.end());
  ReleaseLater released;
  const std::unique_lock structure(StructureMutex());
  CLIKART_ASSIGN_OR_RETURN(const std::vector<FusePart> parts, TakeParts(kCaller, all));
  GroupCore::Traits traits;
  traits.name = options.name.value_or("");
  CLIKART_ASSIGN_OR_RETURN(traits.activation, CommonActivation(kCaller, parts, options.activation));
  if (ir::IsGated(traits.activation)) {
    return absl::FailedPreconditionError(absl::StrCat(kCaller, ": the gated activation '",
                                                      Text(ir::Name(traits.activation)),
                                                      "' halves the channels, which a convolution does not serve"));
  }
  ConvOptions group_options = layers[0]->options();
  for (const FusePart& part : parts) {
    if (part.body->traits().grid->rank() != parts[0].body->traits().grid->rank()) {
      return absl::FailedPreconditionError(
          absl::StrCat(kCaller, ": ", part.body->label(), " has ", part.body->traits().grid->rank(), " spatial axes, ",
                       parts[0].body->label(), " ", parts[0].body->traits().grid->rank(), ": no input fits both"));
    }
    traits.width += part.body->traits().rows;
    group_options.bias |= part.body->Find("bias").has_value();
  }
  group_options.name = traits.name;
  group_options.activation = traits.activation;
  traits.reasons = ReasonsAgainst(parts);
  CLIKART_RETURN_IF_ERROR(ReportReasons(kCaller, traits));
  CLIKART_ASSIGN_OR_RETURN(FuseResult result, traits.reasons.empty()
                                                  ? BuildFused(parts, traits)
                                                  : BuildSideBySide(parts, traits.activation, traits.residency));
  std::shared_ptr<GroupCore> core = CommitGroup(std::move(traits), parts, std::move(result), released);
  return std::make_shared<ConvGroupLayer>(GroupServer(std::move(core), all), std::move(group_options));
}

}  // namespace clikart
