// Which instruction multiplies, and how weights are packed for it (spec/numerics.md, rule 5).
//
// Both are functions of types, depth, target and CLIKART_MATH alone: never of rows, columns, grouping,
// residency or of what an emitter refuses. So a layer has the same bits fused or not, at every batch size
// and thread count, on one machine.
#pragma once

#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

enum class MathMode : uint8_t {
  kNative,  // low-precision instructions where the target has them
  kExact,   // rule 1 everywhere
};

// For the contraction, x, w, scheme and depth() of `spec`, and whether its groups are uneven.
ir::Product ProductFor(const ir::KernelSpec& spec, const Target& target, MathMode math);

// Decided before x is known, from the contraction, w and scheme of `spec`: a pack serves kernels of every input type.
int InterleaveFor(const ir::KernelSpec& spec, const Target& target, MathMode math);

}  // namespace clikart::codegen
