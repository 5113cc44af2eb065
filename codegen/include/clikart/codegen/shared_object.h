// Shared objects of this project that are loaded only where they are needed, because of what they link.
#pragma once

#include "absl/status/statusor.h"

namespace clikart::codegen {

// The address of `function` in the object `file`, which is looked for beside the program or Python module that this
// code is in, then by the loader's rules. The object stays loaded. NotFound says where it was looked for,
// FailedPrecondition that it has no such function.
absl::StatusOr<void*> FindInObject(const char* file, const char* function);

}  // namespace clikart::codegen
