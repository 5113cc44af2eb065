// Linear: float weights.
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "environment.h"
#include "linear_body.h"
#include "serve.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

class LinearLayer final : public Linear {
 public:
  LinearLayer(std::string name, std::shared_ptr<LayerBody> body, bool bias)
      : Linear(std::move(name), std::move(body)), bias_(bias) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override { return ServeRows(*body_, x); }
  int64_t in_features() const override { return body_->traits().inputs; }
  int64_t out_features() const override { return body_->traits().rows; }
  bool has_bias() const override { return bias_; }
  DType dtype() const override { return body_->traits().spec.w; }
  Activation activation() const override { return body_->traits().spec.activation; }
  Residency residency() const override { return body_->traits().residency; }

 private:
  const bool bias_;
};

}  // namespace

WeightRows RowsOfWeight(const std::byte* data, int64_t rows, int64_t taps, int64_t channels, DType dtype) {
  return {.data = data,
          .rows = rows,
          .row_stride = taps * channels * static_cast<int64_t>(ir::SizeOf(dtype)),
          .taps = taps,
          .channels = channels};
}

absl::Status CheckLayer(const std::string& layer, int64_t inputs, int64_t rows, bool bias, const ir::KernelSpec& spec) {
  if (inputs < 0 || rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, ": sizes are not negative; received ", inputs, " inputs and ", rows, " outputs"));
  }
  if (spec.gated()) {
    const absl::string_view activation = Text(ir::Name(spec.activation));
    if (bias) {
      return absl::FailedPreconditionError(absl::StrCat(layer, ": the gated activation '", activation,
                                                        "' needs a layer without a bias; expected bias=False"));
    }
    if (rows % 2 != 0) {
      return absl::FailedPreconditionError(absl::StrCat(layer, ": the gated activation '", activation,
                                                        "' halves the outputs; expected an even number, found ", rows));
    }
  }
  const absl::Status verified = spec.Verify();
  if (!verified.ok()) return absl::InvalidArgumentError(absl::StrCat(layer, ": ", verified.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Engine>> LinearBody::Build(const Tensors& tensors, ir::Activation activation,
                                                          Residency residency) const {
  auto engine = std::make_shared<Engine>(SpecFor(tensors, activation));
  CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned weight, PinParameter(*this, tensors, 0));
  const WeightRows rows = RowsOfWeight(weight.data, traits().rows, 1, traits().inputs, traits().spec.w);
  if (residency == Residency::kPacked) {
    const std::vector<WeightRows> slices[] = {{rows}};
    CLIKART_RETURN_IF_ERROR(engine->Pack(slices));
  } else {
    engine->ServePerCall({rows}, {std::move(weight.memory)});
  }
  if (Find("bias").has_value()) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, BiasValues(*this, tensors));
    engine->SetBias(bias);
  }
  return engine;
}

absl::StatusOr<std::shared_ptr<Linear>> Linear::Create(int64_t in_features, int64_t out_features,
                                                       const LinearOptions& options) {
  LayerTraits traits;
  traits.type = "Linear";
  traits.name = options.name;
  traits.inputs = in_features;
  traits.rows = out_features;
  traits.residency = options.residency;
  traits.spec.n = out_features;
  traits.spec.k = in_features;
  traits.spec.w = options.dtype;
  traits.spec.bias = options.bias ? ir::BiasKind::kFloat32 : ir::BiasKind::kNone;
  traits.spec.activation = options.activation;
  CLIKART_RETURN_IF_ERROR(CheckLayer(LayerLabel("Linear", options.name, in_features, out_features), in_features,
                                     out_features, options.bias, traits.spec));
  traits.parameters.push_back(
      {.name = "weight", .shape = {out_features, in_features}, .dtype = options.dtype, .float_converts = true});
  if (options.bias) traits.parameters.push_back(BiasParameter(out_features, options.dtype));
  auto body = std::make_shared<LinearBody>(std::move(traits));
  return std::make_shared<LinearLayer>(options.name, std::move(body), options.bias);
}

}  // namespace clikart
