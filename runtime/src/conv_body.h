// The body of convolutions, and running one over an input.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "conv_grid.h"
#include "layer_body.h"
#include "serve.h"

namespace clikart {

class ConvBody : public LayerBody {
 public:
  using LayerBody::LayerBody;
  ConvGrid& grid() const { return *traits().grid; }
  absl::StatusOr<std::shared_ptr<Engine>> Build(const Tensors& tensors, ir::Activation activation,
                                                Residency residency) const override;
  // This layer's weight rows, one list a slice.
  absl::StatusOr<std::vector<std::vector<WeightRows>>> SliceRows(const Tensors& tensors) const;
};

// Runs the kernel over x [batch, *spatial, channels] in one dispatch; `sizes` are the output's spatial
// sizes, y's rows its pixels in order.
absl::Status RunConv(const Engine& engine, const Kernel* kernel, ConvGrid& grid, const Tensor& x, const Shape& sizes,
                     const Output& y);

}  // namespace clikart
