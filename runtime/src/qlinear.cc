// QLinear: int8 or uint8 inputs, int8 weights, exact integer sums.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "linear_body.h"
#include "serve.h"
#include "status_macros.h"

namespace clikart {
namespace {

class QLinearLayer final : public QLinear {
 public:
  QLinearLayer(QLinearOptions options, std::shared_ptr<LayerBody> body)
      : QLinear(options.name, std::move(body)), options_(std::move(options)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override { return ServeRows(*body_, x); }
  int64_t in_features() const override { return body_->traits().inputs; }
  int64_t out_features() const override { return body_->traits().rows; }
  bool has_bias() const override { return options_.bias; }
  Activation activation() const override { return options_.activation; }

 private:
  const QLinearOptions options_;
};

ParameterSpec Scale(std::string name, bool required) {
  return {.name = std::move(name),
          .shape = {1},
          .dtype = DType::kFloat32,
          .required = required,
          .float_converts = true,
          .single_value = true};
}

ParameterSpec ZeroPoint(std::string name, bool required) {
  return {.name = std::move(name),
          .shape = {1},
          .dtype = DType::kInt32,
          .required = required,
          .single_value = true,
          .also_taken = {DType::kInt8, DType::kUInt8}};
}

absl::StatusOr<float> FloatOf(const Tensor& tensor) {
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensor.Pin());
  float value;
  std::memcpy(&value, pinned.data, sizeof value);
  return value;
}

absl::StatusOr<int32_t> IntegerOf(const Tensor& tensor) {
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensor.Pin());
  if (tensor.dtype() == DType::kInt8) return static_cast<int8_t>(*pinned.data);
  if (tensor.dtype() == DType::kUInt8) return static_cast<uint8_t>(*pinned.data);
  int32_t value;
  std::memcpy(&value, pinned.data, sizeof value);
  return value;
}

}  // namespace

absl::Status QLinearBody::Check(const Tensors& tensors) const {
  for (std::string_view name : {"input_zero_point", "output_zero_point"}) {
    const std::optional<Tensor>& tensor = tensors[*Find(name)];
    if (!tensor.has_value()) continue;
    CLIKART_ASSIGN_OR_RETURN(const int32_t value, IntegerOf(*tensor));
    if (value < -128 || value > 255) {
      return absl::FailedPreconditionError(
          absl::StrCat(std::string(name), ": found ", value, "; expected -128 to 127 for int8, 0 to 255 for uint8"));
    }
  }
  if (tensors[*Find("output_zero_point")].has_value() && !tensors[*Find("output_scale")].has_value()) {
    return absl::FailedPreconditionError("output_zero_point: found without output_scale; expected both or neither");
  }
  return absl::OkStatus();
}

ir::KernelSpec QLinearBody::SpecFor(const Tensors& tensors, ir::Activation activation) const {
  ir::KernelSpec spec = traits().spec;
  spec.activation = activation;
  spec.requantize = tensors[*Find("output_scale")].has_value();
  return spec;
}

absl::StatusOr<std::shared_ptr<Engine>> QLinearBody::Build(const Tensors& tensors, ir::Activation activation,
                                                           Residency) const {
  auto engine = std::make_shared<Engine>(SpecFor(tensors, activation));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned weight, PinParameter(*this, tensors, 0));
  const std::vector<WeightRows> slices[] = {
      {RowsOfWeight(weight.data, traits().rows, 1, traits().inputs, DType::kInt8)}};
  CLIKART_RETURN_IF_ERROR(engine->Pack(slices));
  CLIKART_ASSIGN_OR_RETURN(const std::vector<float> scales, FloatsOf(*this, tensors, *Find("weight_scale")));
  CLIKART_ASSIGN_OR_RETURN(const float input_scale, FloatOf(*tensors[*Find("input_scale")]));
  codegen::IntegerQuant quant;
  CLIKART_ASSIGN_OR_RETURN(quant.input_zero_point, IntegerOf(*tensors[*Find("input_zero_point")]));
  if (engine->spec().requantize) {
    CLIKART_ASSIGN_OR_RETURN(quant.output_scale, FloatOf(*tensors[*Find("output_scale")]));
    const std::optional<Tensor>& zero = tensors[*Find("output_zero_point")];
    if (zero.has_value()) {
      CLIKART_ASSIGN_OR_RETURN(quant.output_zero_point, IntegerOf(*zero));
    }
  }
  engine->SetInteger(quant, input_scale, scales);
  if (Find("bias").has_value()) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, BiasValues(*this, tensors));
    engine->SetBias(bias);
  }
  return engine;
}

absl::StatusOr<std::shared_ptr<QLinear>> QLinear::Create(int64_t in_features, int64_t out_features,
                                                         const QLinearOptions& options) {
  const std::string label = LayerLabel("QLinear", options.name, in_features, out_features);
  LayerTraits traits;
  traits.type = "QLinear";
  traits.name = options.name;
  traits.inputs = in_features;
  traits.rows = out_features;
  traits.spec.contraction = ir::Contraction::kInteger;
  traits.spec.n = out_features;
  traits.spec.k = in_features;
  traits.spec.x = DType::kInt8;
  traits.spec.w = DType::kInt8;
  traits.spec.interleave = 4;  // as InterleaveFor has it on every target
  traits.spec.bias = options.bias ? ir::BiasKind::kFloat32 : ir::BiasKind::kNone;
  traits.spec.activation = options.activation;
  CLIKART_RETURN_IF_ERROR(CheckLayer(label, in_features, out_features, options.bias, traits.spec));
  traits.parameters.push_back({.name = "weight", .shape = {out_features, in_features}, .dtype = DType::kInt8});
  traits.parameters.push_back(
      {.name = "weight_scale", .shape = {out_features}, .dtype = DType::kFloat32, .float_converts = true});
  traits.parameters.push_back(Scale("input_scale", true));
  traits.parameters.push_back(ZeroPoint("input_zero_point", true));
  traits.parameters.push_back(Scale("output_scale", false));
  traits.parameters.push_back(ZeroPoint("output_zero_point", false));
  if (options.bias) {
    traits.parameters.push_back(
        {.name = "bias", .shape = {out_features}, .dtype = DType::kFloat32, .float_converts = true});
  }
  return std::make_shared<QLinearLayer>(options, std::make_shared<QLinearBody>(std::move(traits)));
}

}  // namespace clikart
