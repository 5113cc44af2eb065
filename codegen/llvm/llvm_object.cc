#include "llvm_object.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "clikart/codegen/shared_object.h"

namespace clikart::codegen {

absl::StatusOr<const LlvmApi*> LoadLlvmObject(const char* file) {
  // Nothing of this LLVM is visible to another one in the process.
  const absl::StatusOr<void*> function = FindInObject(file, kLlvmApiFunction);
  if (!function.ok()) return function.status();
  const LlvmApi* const answer = reinterpret_cast<LlvmApiFunction>(*function)();
  if (answer->contract != LlvmContract() || std::string_view(answer->version) != CLIKART_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(file, " belongs to version ", answer->version,
                                                      " or another build of the library, which is ", CLIKART_VERSION));
  }
  return answer;
}

const absl::StatusOr<const LlvmApi*>& LoadLlvm() {
  static const auto* const loaded = new absl::StatusOr<const LlvmApi*>(LoadLlvmObject(kLlvmObject));
  return *loaded;
}

}  // namespace clikart::codegen
