// What every layer does with its body: reading parameters back, preparing, printing.
#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "layer_body.h"
#include "serve.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {

std::vector<ParameterSpec> Layer::Parameters() const {
  return body_ == nullptr ? std::vector<ParameterSpec>() : body_->parameters();
}

LayerState Layer::state() const { return body_ == nullptr ? LayerState::kPacked : body_->state()->kind; }

absl::StatusOr<Tensor> Layer::Parameter(std::string_view name) const {
  const std::optional<size_t> index = body_ == nullptr ? std::nullopt : body_->Find(name);
  if (!index.has_value()) {
    return absl::NotFoundError(absl::StrCat(ToString(), " has no parameter '", Text(name), "'"));
  }
  for (;;) {
    const std::shared_ptr<const BodyState> state = body_->state();
    CLIKART_ASSIGN_OR_RETURN(std::optional<Tensor> tensor, body_->Read(*state, *index));
    if (!tensor.has_value()) {
      const bool unbound = state->kind == LayerState::kUnbound;
      const std::string message = absl::StrCat(body_->label(), unbound ? " is unbound: it has no '" : " holds no '",
                                               Text(name), unbound ? "' yet" : "', which is optional");
      return unbound ? absl::FailedPreconditionError(message) : absl::NotFoundError(message);
    }
    // A first forward elsewhere may have packed the weight away meanwhile.
    if (tensor->has_storage() || state == body_->state()) return *std::move(tensor);
  }
}

absl::Status Layer::Bind(const StateDict& tensors, const LoadOptions& options) {
  return LoadStateDict(tensors, options).status();
}

absl::StatusOr<std::vector<std::string>> Layer::Prepare(const Shape& input_shape, DType input_dtype) {
  CLIKART_RETURN_IF_ERROR(input_shape.empty() ? CheckInputDType(*body_, input_dtype)
                                              : CheckInput(*body_, input_shape, input_dtype));
  CLIKART_ASSIGN_OR_RETURN(const std::shared_ptr<const BodyState> state, body_->Packed());
  if (body_->traits().rows == 0) return std::vector<std::string>();
  KernelSet& kernels = state->engine->kernels();
  CLIKART_ASSIGN_OR_RETURN(const Kernel* kernel, kernels.Get(input_dtype, kernels.OutputFor(input_dtype)));
  return std::vector<std::string>{kernel->signature};
}

}  // namespace clikart
