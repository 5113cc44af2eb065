// Where forwards put their outputs.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "clikart/tensor.h"

namespace clikart {

// Uninitialized, in blocks that earlier outputs have given up (CLIKART_OUTPUT_CACHE_SIZE) where they are of more than
// a few pages. Errors as Memory::Allocate's and Tensor::Empty's.
absl::StatusOr<std::shared_ptr<Memory>> OutputMemory(size_t bytes);
absl::StatusOr<Tensor> EmptyOutput(std::span<const int64_t> shape, DType dtype);

}  // namespace clikart
