// The bodies of the layers that map rows.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "layer_body.h"

namespace clikart {

class LinearBody : public LayerBody {
 public:
  using LayerBody::LayerBody;
  absl::StatusOr<std::shared_ptr<Engine>> Build(const Tensors& tensors, ir::Activation activation,
                                                Residency residency) const override;
};

class QLinearWoQBody : public LayerBody {
 public:
  using LayerBody::LayerBody;
  const QuantScheme& scheme() const { return *traits().spec.scheme; }
  absl::Status Check(const Tensors& tensors) const override;
  ir::KernelSpec SpecFor(const Tensors& tensors, ir::Activation activation) const override;
  absl::StatusOr<std::shared_ptr<Engine>> Build(const Tensors& tensors, ir::Activation activation,
                                                Residency residency) const override;
  // This layer's part of a kernel; `memory` gets what keeps it alive.
  absl::StatusOr<CodePart> Part(const Tensors& tensors, std::vector<std::shared_ptr<Memory>>& memory) const;
  absl::StatusOr<GroupOrder> Order(const Tensors& tensors) const;
};

class QLinearBody : public LayerBody {
 public:
  using LayerBody::LayerBody;
  absl::Status Check(const Tensors& tensors) const override;
  ir::KernelSpec SpecFor(const Tensors& tensors, ir::Activation activation) const override;
  absl::StatusOr<std::shared_ptr<Engine>> Build(const Tensors& tensors, ir::Activation activation,
                                                Residency residency) const override;
};

// Packs the parts of a quantized engine, or lets it pack them in each call; `memory` keeps them alive.
absl::Status ServeCodes(std::vector<CodePart> parts, std::vector<std::shared_ptr<Memory>> memory, Residency residency,
                        Engine& engine);

// The rows of a float weight [rows, depth] or [rows, channels, *kernel] in memory.
WeightRows RowsOfWeight(const std::byte* data, int64_t rows, int64_t taps, int64_t channels, DType dtype);

// Checks that all widths and options make a layer: sizes are not negative, a gated activation has even
// rows and no bias, and the spec verifies. `layer` names it in the message.
absl::Status CheckLayer(const std::string& layer, int64_t inputs, int64_t rows, bool bias, const ir::KernelSpec& spec);

}  // namespace clikart
