// QLinearWoQ: quantized weights, float inputs.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "linear_body.h"
#include "serve.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

class QLinearWoQLayer final : public QLinearWoQ {
 public:
  QLinearWoQLayer(QLinearWoQOptions options, std::shared_ptr<LayerBody> body)
      : QLinearWoQ(options.name, std::move(body)), options_(std::move(options)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override { return ServeRows(*body_, x); }
  int64_t in_features() const override { return body_->traits().inputs; }
  int64_t out_features() const override { return body_->traits().rows; }
  bool has_bias() const override { return options_.bias; }
  const QuantScheme& scheme() const override { return options_.scheme; }
  Compute compute() const override { return options_.compute; }
  Activation activation() const override { return options_.activation; }
  Residency residency() const override { return options_.residency; }

 private:
  const QLinearWoQOptions options_;
};

std::vector<ParameterSpec> ParametersOf(int64_t inputs, int64_t rows, const QLinearWoQOptions& options) {
  const QuantScheme& scheme = options.scheme;
  const int64_t groups = scheme.GroupCount(inputs);
  std::vector<ParameterSpec> specs;
  specs.push_back({.name = "weight", .shape = {rows, scheme.CodeBytes(inputs)}, .dtype = scheme.CodeDType()});
  specs.push_back({.name = "weight_scale",
                   .shape = {rows, groups},
                   .dtype = scheme.ScaleDType(),
                   .float_converts = ir::IsFloat(scheme.ScaleDType())});
  if (scheme.minimum) {
    specs.push_back(
        {.name = "weight_minimum", .shape = {rows, groups}, .dtype = scheme.ScaleDType(), .float_converts = true});
  }
  if (scheme.HasZeroPoint()) {
    specs.push_back({.name = "weight_zero_point", .shape = {rows, groups}, .dtype = DType::kUInt8});
  }
  specs.push_back({.name = "weight_g_idx", .shape = {inputs}, .dtype = DType::kInt32, .required = false});
  if (scheme.HasGlobalScale()) {
    specs.push_back({.name = "weight_global_scale",
                     .shape = {1},
                     .dtype = DType::kFloat32,
                     .float_converts = true,
                     .single_value = true});
  }
  if (options.bias) specs.push_back(BiasParameter(rows, DType::kFloat32));
  return specs;
}

}  // namespace

absl::Status QLinearWoQBody::Check(const Tensors& tensors) const {
  const std::optional<size_t> zero = Find("weight_zero_point");
  if (zero.has_value() && tensors[*zero].has_value() && scheme().bits < 8) {
    CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensors[*zero]->Pin());
    const int64_t count = tensors[*zero]->numel();
    const auto most = static_cast<std::byte>((1 << scheme().bits) - 1);
    const std::byte* const bad =
        std::find_if(pinned.data, pinned.data + count, [most](std::byte b) { return b > most; });
    if (bad != pinned.data + count) {
      return absl::FailedPreconditionError(absl::StrCat("weight_zero_point: found ", static_cast<int>(*bad),
                                                        " at position ", bad - pinned.data, "; expected 0 to ",
                                                        static_cast<int>(most), " for ", scheme().bits, "-bit codes"));
    }
  }
  const std::optional<size_t> order = Find("weight_g_idx");
  if (tensors[*order].has_value()) {
    CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensors[*order]->Pin());
    const int64_t groups = scheme().GroupCount(traits().inputs);
    for (int64_t i = 0; i < tensors[*order]->numel(); ++i) {
      int32_t group;
      std::memcpy(&group, pinned.data + i * static_cast<int64_t>(sizeof group), sizeof group);
      if (group < 0 || group >= groups) {
        return absl::FailedPreconditionError(absl::StrCat("weight_g_idx: found ", group, " at position ", i,
                                                          "; expected 0 to ", groups - 1, " (", groups, " groups)"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GroupOrder> QLinearWoQBody::Order(const Tensors& tensors) const {
  const std::optional<Tensor>& index = tensors[*Find("weight_g_idx")];
  if (!index.has_value()) return GroupOrder();
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, index->Pin());
  return GroupOrderOf(scheme(), traits().inputs, pinned.data);
}

ir::KernelSpec QLinearWoQBody::SpecFor(const Tensors& tensors, ir::Activation activation) const {
  ir::KernelSpec spec = traits().spec;
  spec.activation = activation;
  const absl::StatusOr<GroupOrder> order = Order(tensors);
  if (order.ok()) spec.order = order->order;
  return spec;
}

absl::StatusOr<CodePart> QLinearWoQBody::Part(const Tensors& tensors,
                                              std::vector<std::shared_ptr<Memory>>& memory) const {
  const auto place = [&](std::string_view name) -> absl::StatusOr<const std::byte*> {
    const std::optional<size_t> index = Find(name);
    if (!index.has_value() || !tensors[*index].has_value()) return static_cast<const std::byte*>(nullptr);
    CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, PinParameter(*this, tensors, *index));
    memory.push_back(std::move(pinned.memory));
    return pinned.data;
  };
  CodePart part;
  part.rows.rows = traits().rows;
  CLIKART_ASSIGN_OR_RETURN(part.rows.codes, place("weight"));
  CLIKART_ASSIGN_OR_RETURN(part.rows.scales, place("weight_scale"));
  CLIKART_ASSIGN_OR_RETURN(part.rows.minimums, place("weight_minimum"));
  CLIKART_ASSIGN_OR_RETURN(part.rows.zero_points, place("weight_zero_point"));
  CLIKART_ASSIGN_OR_RETURN(const std::byte* const global, place("weight_global_scale"));
  if (global != nullptr) std::memcpy(&part.global_scale, global, sizeof part.global_scale);
  CLIKART_ASSIGN_OR_RETURN(part.order, Order(tensors));
  return part;
}

absl::Status ServeCodes(std::vector<CodePart> parts, std::vector<std::shared_ptr<Memory>> memory, Residency residency,
                        Engine& engine) {
  if (residency == Residency::kPacked) return engine.PackCodes(std::move(parts));
  engine.ServeCodesPerCall(std::move(parts), std::move(memory));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Engine>> QLinearWoQBody::Build(const Tensors& tensors, ir::Activation activation,
                                                              Residency residency) const {
  auto engine = std::make_shared<Engine>(SpecFor(tensors, activation));
  std::vector<std::shared_ptr<Memory>> memory;
  std::vector<CodePart> parts(1);
  CLIKART_ASSIGN_OR_RETURN(parts[0], Part(tensors, memory));
  CLIKART_RETURN_IF_ERROR(ServeCodes(std::move(parts), std::move(memory), residency, *engine));
  if (Find("bias").has_value()) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, BiasValues(*this, tensors));
    engine->SetBias(bias);
  }
  return engine;
}

absl::StatusOr<std::shared_ptr<QLinearWoQ>> QLinearWoQ::Create(int64_t in_features, int64_t out_features,
                                                               const QLinearWoQOptions& options) {
  const std::string label = LayerLabel("QLinearWoQ", options.name, in_features, out_features);
  const absl::Status scheme = options.scheme.Validate();
  if (!scheme.ok()) return absl::InvalidArgumentError(absl::StrCat(label, ": ", scheme.message()));
  LayerTraits traits;
  traits.type = "QLinearWoQ";
  traits.name = options.name;
  traits.inputs = in_features;
  traits.rows = out_features;
  traits.residency = options.residency;
  traits.spec.contraction =
      options.compute == Compute::kInt8 ? ir::Contraction::kRowInt8 : ir::Contraction::kWeightOnly;
  traits.spec.n = out_features;
  traits.spec.k = in_features;
  traits.spec.w = options.scheme.CodeDType();
  traits.spec.scheme = options.scheme;
  traits.spec.interleave = ir::CodeInterleave(traits.spec.contraction, options.scheme);
  traits.spec.bias = options.bias ? ir::BiasKind::kFloat32 : ir::BiasKind::kNone;
  traits.spec.activation = options.activation;
  CLIKART_RETURN_IF_ERROR(CheckLayer(label, in_features, out_features, options.bias, traits.spec));
  traits.parameters = ParametersOf(in_features, out_features, options);
  return std::make_shared<QLinearWoQLayer>(options, std::make_shared<QLinearWoQBody>(std::move(traits)));
}

}  // namespace clikart
