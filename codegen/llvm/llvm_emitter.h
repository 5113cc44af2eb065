// Code from LLVM: every x86-64 level, at a few dozen milliseconds a kernel.
#pragma once

#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

const Emitter& LlvmEmitter();

}  // namespace clikart::codegen
