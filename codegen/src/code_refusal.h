// What of quantized weights no generated kernel serves, whichever emitter makes it.
#pragma once

#include <optional>

#include "clikart/codegen/emitter.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// `spec` is one of quantized weights.
std::optional<Rejection> RefuseCodes(const ir::KernelSpec& spec);

}  // namespace clikart::codegen
