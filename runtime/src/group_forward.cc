// A group's forward: each unit writes its columns of the output, so there is no concatenation.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "conv_body.h"
#include "gate.h"
#include "group_core.h"
#include "output.h"
#include "serve.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

int64_t Bytes(DType dtype) { return static_cast<int64_t>(ir::SizeOf(dtype)); }

// Says where the layer that an error names is served.
absl::Status InGroup(absl::Status status, const GroupCore& core) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), " (in the group ", core.label(), ")"));
}

}  // namespace

absl::StatusOr<Tensor> GroupServer::ForwardRows(const Tensor& x) const {
  CLIKART_ASSIGN_OR_RETURN(const std::shared_ptr<const GroupPlan> plan, Plan());
  for (const GroupUnit& unit : plan->units)
    CLIKART_RETURN_IF_ERROR(InGroup(CheckInput(*unit.body, x.shape(), x.dtype()), *core_));
  Shape shape = x.shape();
  shape.back() = core_->outputs();
  CLIKART_ASSIGN_OR_RETURN(Tensor y, EmptyOutput(shape, x.dtype()));
  CLIKART_ASSIGN_OR_RETURN(const Rows rows, RowsOf(x));
  if (rows.count == 0 || shape.back() == 0) return y;
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, y.Pin());

  // A gate needs both halves of a row in f32 before the one rounding.
  const bool gate_after = core_->GateAfter(*plan);
  Output place{out.data, core_->outputs() * Bytes(x.dtype())};
  std::shared_ptr<Memory> wide;
  if (gate_after) {
    place.stride = core_->traits().width * Bytes(DType::kFloat32);
    CLIKART_ASSIGN_OR_RETURN(wide, OutputMemory(static_cast<size_t>(rows.count * place.stride)));
    place.data = wide->data();
  }
  const DType y_dtype = gate_after ? DType::kFloat32 : x.dtype();
  // All kernels before the first launch, so that an error leaves nothing half done.
  absl::InlinedVector<const Kernel*, 8> kernels;
  for (const GroupUnit& unit : plan->units) {
    kernels.push_back(nullptr);
    if (unit.engine->outputs() == 0) continue;
    CLIKART_ASSIGN_OR_RETURN(kernels.back(), unit.kernels->Get(x.dtype(), y_dtype));
  }
  for (size_t i = 0; i < plan->units.size(); ++i) {
    const GroupUnit& unit = plan->units[i];
    if (kernels[i] == nullptr) continue;
    RunRows(*unit.engine, kernels[i], rows, {place.data + unit.column * Bytes(y_dtype), place.stride});
  }
  if (gate_after) {
    ApplyGate(core_->traits().activation, reinterpret_cast<const float*>(wide->data()), rows.count, core_->outputs(),
              out.data, x.dtype());
  }
  return y;
}

absl::StatusOr<Tensor> GroupServer::ForwardImages(const Tensor& x) const {
  CLIKART_ASSIGN_OR_RETURN(const std::shared_ptr<const GroupPlan> plan, Plan());
  Shape sizes;
  for (const GroupUnit& unit : plan->units) {
    CLIKART_RETURN_IF_ERROR(InGroup(CheckInput(*unit.body, x.shape(), x.dtype()), *core_));
    const ConvGrid& grid = *unit.body->traits().grid;
    const std::span<const int64_t> spatial = std::span(x.shape()).subspan(1, static_cast<size_t>(grid.rank()));
    CLIKART_ASSIGN_OR_RETURN(Shape own, grid.OutputSizes(unit.body->label(), spatial));
    if (unit.column != 0 && own != sizes) {
      return absl::InvalidArgumentError(absl::StrCat(unit.body->label(), " gives an output grid of ", ShapeString(own),
                                                     " for an input of shape ", ShapeString(x.shape()),
                                                     ", but the parts before it in the group ", core_->label(),
                                                     " give ", ShapeString(sizes)));
    }
    sizes = std::move(own);
  }
  Shape shape = {x.shape()[0]};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.push_back(core_->outputs());
  CLIKART_ASSIGN_OR_RETURN(Tensor y, EmptyOutput(shape, x.dtype()));
  if (y.numel() == 0) return y;
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, y.Pin());
  absl::InlinedVector<const Kernel*, 8> kernels;
  for (const GroupUnit& unit : plan->units) {
    kernels.push_back(nullptr);
    if (unit.engine->outputs() == 0) continue;
    CLIKART_ASSIGN_OR_RETURN(kernels.back(), unit.kernels->Get(x.dtype(), x.dtype()));
  }
  for (size_t i = 0; i < plan->units.size(); ++i) {
    const GroupUnit& unit = plan->units[i];
    if (kernels[i] == nullptr) continue;
    const Output place{out.data + unit.column * Bytes(x.dtype()), core_->outputs() * Bytes(x.dtype())};
    CLIKART_RETURN_IF_ERROR(RunConv(*unit.engine, kernels[i], *unit.body->traits().grid, x, sizes, place));
  }
  return y;
}

}  // namespace clikart
