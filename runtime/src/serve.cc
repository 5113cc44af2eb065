#include "serve.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "conv_grid.h"
#include "output.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

// The stride in elements between rows when all leading axes collapse to one; nothing when they do not.
std::optional<int64_t> RowStride(const Tensor& x) {
  const Shape& shape = x.shape();
  const Shape& strides = x.strides();
  const size_t last = shape.size() - 1;
  if (shape[last] > 1 && strides[last] != 1) return std::nullopt;
  std::optional<int64_t> row;
  int64_t span = 0;  // elements from the first row of the axes seen so far to the next beyond them
  for (size_t i = last; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (!row.has_value()) {
      row = strides[i];
    } else if (strides[i] != span) {
      return std::nullopt;
    }
    span = strides[i] * shape[i];
  }
  return row.value_or(shape[last]);
}

}  // namespace

absl::StatusOr<Rows> RowsOf(const Tensor& x) {
  const int64_t size = static_cast<int64_t>(ir::SizeOf(x.dtype()));
  int64_t count = 1;
  for (int64_t i = 0; i + 1 < x.ndim(); ++i) count *= x.shape()[static_cast<size_t>(i)];
  const std::optional<int64_t> stride = RowStride(x);
  if (stride.has_value()) {
    CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, x.Pin());
    return Rows{std::move(pinned.memory), pinned.data, count, *stride * size};
  }
  CLIKART_ASSIGN_OR_RETURN(const Tensor dense, x.Contiguous());
  CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, dense.Pin());
  return Rows{std::move(pinned.memory), pinned.data, count, x.shape().back() * size};
}

void RunRows(const Engine& engine, const Kernel* kernel, const Rows& rows, const Output& y) {
  EngineContext context{&engine};
  Launch launch;
  launch.kernel = kernel;
  launch.args.x = rows.data;
  launch.args.x_stride = rows.stride;
  launch.args.rows = rows.count;
  launch.args.y = y.data;
  launch.args.y_stride = y.stride;
  launch.context = &context;
  engine.Describe(launch);
  Run(launch);
}

absl::Status CheckInputDType(const LayerBody& body, DType dtype) {
  const bool integer = body.traits().spec.contraction == ir::Contraction::kInteger;
  if (integer ? dtype == DType::kInt8 || dtype == DType::kUInt8 : ir::IsFloat(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(body.label(), " takes ",
                                                 integer ? "int8 or uint8" : "float32, float16 or bfloat16",
                                                 " inputs; received ", Text(ir::Name(dtype))));
}

absl::Status CheckInput(const LayerBody& body, std::span<const int64_t> shape, DType dtype) {
  CLIKART_RETURN_IF_ERROR(CheckInputDType(body, dtype));
  const LayerTraits& traits = body.traits();
  if (traits.grid != nullptr) return traits.grid->CheckInput(body.label(), shape);
  if (!shape.empty() && shape.back() == traits.inputs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(body.label(), " expects an input of shape [*, ", traits.inputs, "]; received ", ShapeString(shape)));
}

absl::StatusOr<Tensor> ServeRows(LayerBody& body, const Tensor& x) {
  std::shared_ptr<const BodyState> state = body.state();
  if (state->kind != LayerState::kPacked) {
    if (state->kind == LayerState::kBound) CLIKART_RETURN_IF_ERROR(CheckInput(body, x.shape(), x.dtype()));
    CLIKART_ASSIGN_OR_RETURN(state, body.Packed());
  }
  Engine& engine = *state->engine;
  KernelSet& kernels = engine.kernels();
  if (x.ndim() == 0 || x.shape().back() != body.traits().inputs || !kernels.Takes(x.dtype())) {
    return CheckInput(body, x.shape(), x.dtype());
  }
  const DType y_dtype = kernels.OutputFor(x.dtype());
  Shape shape = x.shape();
  shape.back() = engine.outputs();
  CLIKART_ASSIGN_OR_RETURN(Tensor y, EmptyOutput(shape, y_dtype));
  CLIKART_ASSIGN_OR_RETURN(const Rows rows, RowsOf(x));
  if (rows.count == 0 || engine.outputs() == 0) return y;
  CLIKART_ASSIGN_OR_RETURN(const Kernel* kernel, kernels.Get(x.dtype(), y_dtype));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, y.Pin());
  RunRows(engine, kernel, rows, {out.data, engine.outputs() * static_cast<int64_t>(ir::SizeOf(y_dtype))});
  return y;
}

}  // namespace clikart
