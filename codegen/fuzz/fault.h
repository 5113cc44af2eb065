// Runs code that may be wrong.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"

namespace clikart::codegen {

// What stopped `call`: "" where it came back, else the signal, and the address that was touched. Objects on
// the way are not destroyed, so what they hold stays behind.
std::string CatchFault(absl::FunctionRef<void()> call);

}  // namespace clikart::codegen
