// The fast path: machine code from Xbyak for dense float contractions.
#pragma once

#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

const Emitter& XbyakEmitter();

}  // namespace clikart::codegen
