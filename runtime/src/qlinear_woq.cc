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
  const int64_t row_codes = scheme.bits == 4 ? (inputs + 1) / 2 : inputs;
  std::vector<ParameterSpec> specs;
  specs.push_back({.name = "weight", .shape = {rows, row_codes}, .dtype = scheme.CodeDType()});
  specs.push_back({.name = "weight_scale",
                   .shape = {rows, groups},
                   .dtype = scheme.ScaleDType(),
                   .float_converts = ir::IsFloat(scheme.ScaleDType())});
  if (!scheme.symmetric) {
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

// Memory aligned for T: the tensor's own, or a copy of it.
absl::StatusOr<Tensor::Pinned> PinAligned(const LayerBody& body, const Tensors& tensors, size_t index,
                                          size_t alignment) {
  CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, PinParameter(body, tensors, index));
  if (reinterpret_cast<uintptr_t>(pinned.data) % alignment == 0) return pinned;
  CLIKART_ASSIGN_OR_RETURN(const Tensor copy, tensors[index]->Clone());
  return copy.Pin();
}

}  // namespace

absl::Status QLinearWoQBody::Check(const Tensors& tensors) const {
  const std::optional<size_t> zero = Find("weight_zero_point");
  if (zero.has_value() && tensors[*zero].has_value() && scheme().bits == 4) {
    CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensors[*zero]->Pin());
    const int64_t count = tensors[*zero]->numel();
    const std::byte* const bad =
        std::find_if(pinned.data, pinned.data + count, [](std::byte b) { return b > std::byte{15}; });
    if (bad != pinned.data + count) {
      return absl::FailedPreconditionError(absl::StrCat("weight_zero_point: found ", static_cast<int>(*bad),
                                                        " at position ", bad - pinned.data,
                                                        "; expected 0 to 15 for 4-bit codes"));
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

ir::KernelSpec QLinearWoQBody::SpecFor(const Tensors& tensors, ir::Activation activation) const {
  ir::KernelSpec spec = traits().spec;
  spec.activation = activation;
  spec.act_order = tensors[*Find("weight_g_idx")].has_value();
  return spec;
}

absl::StatusOr<codegen::QuantSegment> QLinearWoQBody::Segment(const Tensors& tensors,
                                                              std::vector<std::shared_ptr<Memory>>& memory) const {
  const auto place = [&](std::string_view name, size_t alignment) -> absl::StatusOr<const std::byte*> {
    const std::optional<size_t> index = Find(name);
    if (!index.has_value() || !tensors[*index].has_value()) return static_cast<const std::byte*>(nullptr);
    CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, PinAligned(*this, tensors, *index, alignment));
    memory.push_back(std::move(pinned.memory));
    return pinned.data;
  };
  codegen::QuantSegment segment;
  segment.rows = traits().rows;
  CLIKART_ASSIGN_OR_RETURN(segment.codes, place("weight", 1));
  CLIKART_ASSIGN_OR_RETURN(segment.scales, place("weight_scale", ir::SizeOf(scheme().ScaleDType())));
  CLIKART_ASSIGN_OR_RETURN(segment.zero_points, place("weight_zero_point", 1));
  CLIKART_ASSIGN_OR_RETURN(const std::byte* const order, place("weight_g_idx", alignof(int32_t)));
  segment.g_idx = reinterpret_cast<const int32_t*>(order);
  CLIKART_ASSIGN_OR_RETURN(const std::byte* const global, place("weight_global_scale", alignof(float)));
  if (global != nullptr) std::memcpy(&segment.global_scale, global, sizeof segment.global_scale);
  return segment;
}

absl::StatusOr<std::shared_ptr<Engine>> QLinearWoQBody::Build(const Tensors& tensors, ir::Activation activation,
                                                              Residency) const {
  auto engine = std::make_shared<Engine>(SpecFor(tensors, activation));
  std::vector<std::shared_ptr<Memory>> memory;
  CLIKART_ASSIGN_OR_RETURN(const codegen::QuantSegment segment, Segment(tensors, memory));
  engine->ServeCodes({segment}, std::move(memory));
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
  traits.spec.bias = options.bias ? ir::BiasKind::kFloat32 : ir::BiasKind::kNone;
  traits.spec.activation = options.activation;
  CLIKART_RETURN_IF_ERROR(CheckLayer(label, in_features, out_features, options.bias, traits.spec));
  traits.parameters = ParametersOf(in_features, out_features, options);
  return std::make_shared<QLinearWoQLayer>(options, std::make_shared<QLinearWoQBody>(std::move(traits)));
}

}  // namespace clikart
