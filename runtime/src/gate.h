// A gated activation over rows that lie in f32: for groups whose parts run side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/ir/activation.h"
#include "clikart/ir/dtype.h"

namespace clikart {

// x [rows, 2 * outputs], gates first; y [rows, outputs] in `y_type`, rounded once.
void ApplyGate(ir::Activation activation, const float* x, int64_t rows, int64_t outputs, std::byte* y,
               ir::DType y_type);

}  // namespace clikart
