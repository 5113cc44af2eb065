// Conv: channels-last convolutions with float weights.
#include <utility>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "conv_body.h"
#include "linear_body.h"
#include "output.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

class ConvLayer final : public Conv {
 public:
  ConvLayer(ConvOptions options, std::shared_ptr<ConvBody> body, int64_t in_channels)
      : Conv(options.name, body), options_(std::move(options)), conv_(std::move(body)), in_channels_(in_channels) {}

  absl::StatusOr<Tensor> Forward(const Tensor& x) override;
  int64_t in_channels() const override { return in_channels_; }
  int64_t out_channels() const override { return conv_->traits().rows; }
  const ConvOptions& options() const override { return options_; }

 private:
  const ConvOptions options_;
  const std::shared_ptr<ConvBody> conv_;
  const int64_t in_channels_;
};

absl::StatusOr<Tensor> ConvLayer::Forward(const Tensor& x) {
  std::shared_ptr<const BodyState> state = conv_->state();
  if (state->kind != LayerState::kPacked) {
    if (state->kind == LayerState::kBound) CLIKART_RETURN_IF_ERROR(CheckInput(*conv_, x.shape(), x.dtype()));
    CLIKART_ASSIGN_OR_RETURN(state, conv_->Packed());
  }
  CLIKART_RETURN_IF_ERROR(CheckInput(*conv_, x.shape(), x.dtype()));
  ConvGrid& grid = conv_->grid();
  const std::span<const int64_t> spatial = std::span(x.shape()).subspan(1, static_cast<size_t>(grid.rank()));
  CLIKART_ASSIGN_OR_RETURN(const Shape sizes, grid.OutputSizes(conv_->label(), spatial));
  Shape shape = {x.shape()[0]};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.push_back(out_channels());
  CLIKART_ASSIGN_OR_RETURN(Tensor y, EmptyOutput(shape, x.dtype()));
  if (y.numel() == 0) return y;
  CLIKART_ASSIGN_OR_RETURN(const Kernel* kernel, state->engine->kernels().Get(x.dtype(), x.dtype()));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, y.Pin());
  const Output output{out.data, out_channels() * static_cast<int64_t>(ir::SizeOf(x.dtype()))};
  CLIKART_RETURN_IF_ERROR(RunConv(*state->engine, kernel, grid, x, sizes, output));
  return y;
}

absl::Status CheckChannels(const std::string& label, int64_t in_channels, int64_t out_channels, int64_t groups) {
  if (in_channels < 0 || out_channels < 0) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": sizes are not negative; received ", in_channels,
                                                   " input and ", out_channels, " output channels"));
  }
  if (groups < 1)
    return absl::InvalidArgumentError(absl::StrCat(label, ": groups must be positive; received ", groups));
  if (in_channels % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": in_channels ", in_channels, " is not divisible by groups ", groups));
  }
  if (out_channels % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": out_channels ", out_channels, " is not divisible by groups ", groups));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<WeightRows>>> ConvBody::SliceRows(const Tensors& tensors) const {
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned weight, PinParameter(*this, tensors, 0));
  const ir::KernelSpec& spec = traits().spec;
  std::vector<std::vector<WeightRows>> slices;
  for (int64_t slice = 0; slice < traits().slices; ++slice) {
    const WeightRows all = RowsOfWeight(weight.data, spec.n, spec.taps, spec.k, spec.w);
    slices.push_back({all});
    slices.back()[0].data += slice * spec.n * all.row_stride;
  }
  return slices;
}

absl::StatusOr<std::shared_ptr<Engine>> ConvBody::Build(const Tensors& tensors, ir::Activation activation,
                                                        Residency) const {
  auto engine = std::make_shared<Engine>(SpecFor(tensors, activation));
  CLIKART_ASSIGN_OR_RETURN(const std::vector<std::vector<WeightRows>> slices, SliceRows(tensors));
  CLIKART_RETURN_IF_ERROR(engine->Pack(slices));
  if (Find("bias").has_value()) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> bias, BiasValues(*this, tensors));
    engine->SetBias(bias);
  }
  return engine;
}

absl::StatusOr<std::shared_ptr<Conv>> Conv::Create(int64_t in_channels, int64_t out_channels,
                                                   const ConvOptions& options) {
  const std::string label = LayerLabel("Conv", options.name, in_channels, out_channels);
  CLIKART_RETURN_IF_ERROR(CheckChannels(label, in_channels, out_channels, options.groups));
  if (ir::IsGated(options.activation)) {
    return absl::FailedPreconditionError(absl::StrCat(label, ": the gated activation '",
                                                      Text(ir::Name(options.activation)),
                                                      "' halves the channels, which a convolution does not serve"));
  }
  LayerTraits traits;
  CLIKART_ASSIGN_OR_RETURN(traits.grid, ConvGrid::Create(label, in_channels, options));
  traits.type = "Conv";
  traits.name = options.name;
  traits.inputs = in_channels;
  traits.rows = out_channels;
  traits.groups = options.groups;
  traits.detail = absl::StrCat("kernel_size=", ShapeString(options.kernel_size));
  if (options.groups != 1) absl::StrAppend(&traits.detail, ", groups=", options.groups);
  traits.spec.access = traits.grid->pointwise() ? ir::Access::kDense : ir::Access::kIndirect;
  // One channel in and one out a group: channels lie in lanes, and one kernel serves them all.
  const bool depthwise = options.groups > 1 && options.groups == in_channels && options.groups == out_channels;
  if (depthwise) traits.spec.contraction = ir::Contraction::kDepthwise;
  traits.slices = depthwise ? 1 : options.groups;
  traits.spec.n = out_channels / traits.slices;
  traits.spec.k = in_channels / options.groups;
  traits.spec.taps = traits.grid->taps();
  traits.spec.w = options.dtype;
  traits.spec.bias = options.bias ? ir::BiasKind::kFloat32 : ir::BiasKind::kNone;
  traits.spec.activation = options.activation;
  CLIKART_RETURN_IF_ERROR(CheckLayer(label, in_channels, out_channels, options.bias, traits.spec));
  Shape weight = {out_channels, in_channels / options.groups};
  weight.insert(weight.end(), options.kernel_size.begin(), options.kernel_size.end());
  traits.parameters.push_back({.name = "weight", .shape = weight, .dtype = options.dtype, .float_converts = true});
  if (options.bias) traits.parameters.push_back(BiasParameter(out_channels, options.dtype));
  return std::make_shared<ConvLayer>(options, std::make_shared<ConvBody>(std::move(traits)), in_channels);
}

}  // namespace clikart
