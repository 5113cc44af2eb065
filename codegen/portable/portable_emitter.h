// The emitter that serves every spec and needs no generated code: compiled C++, written straight from
// spec to loop. It is the oracle that the others are compared with.
#pragma once

#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

const Emitter& PortableEmitter();

}  // namespace clikart::codegen
