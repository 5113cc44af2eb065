// Finds and loads the shared object that holds LLVM.
#pragma once

#include "absl/status/statusor.h"
#include "llvm_api.h"

namespace clikart::codegen {

// The object, loaded by the first call and kept. An error says where it was looked for; later calls repeat it.
const absl::StatusOr<const LlvmApi*>& LoadLlvm();

// What LoadLlvm does, for a given name; for tests.
absl::StatusOr<const LlvmApi*> LoadLlvmObject(const char* file);

}  // namespace clikart::codegen
