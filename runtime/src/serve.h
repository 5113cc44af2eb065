// Running an engine over rows of x: what linears do, alone and as parts of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/tensor.h"
#include "engine.h"
#include "layer_body.h"

namespace clikart {

// x as rows: the last axis contiguous, one stride between rows.
struct Rows {
  std::shared_ptr<Memory> memory;
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t stride = 0;  // bytes
};

// A view where x's leading axes collapse to one stride, else of a contiguous copy. x.ndim() >= 1.
absl::StatusOr<Rows> RowsOf(const Tensor& x);

// Where a launch writes: column 0 of row 0.
struct Output {
  std::byte* data = nullptr;
  int64_t stride = 0;  // bytes
};

// The whole product in one dispatch.
void RunRows(const Engine& engine, const Kernel* kernel, const Rows& rows, const Output& y);

// InvalidArgument, naming the layer, unless an input of that dtype and shape fits.
absl::Status CheckInput(const LayerBody& body, std::span<const int64_t> shape, DType dtype);
absl::Status CheckInputDType(const LayerBody& body, DType dtype);

// The forward of a layer that maps rows: checks x, packs if need be, runs.
absl::StatusOr<Tensor> ServeRows(LayerBody& body, const Tensor& x);

}  // namespace clikart
