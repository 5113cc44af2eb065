#include "llvm_object.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace clikart::codegen {
namespace {

// The folder of the file that this code was loaded from, with its slash; empty where it has no name.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&LoadLlvm), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(file.substr(0, slash + 1));
}

}  // namespace

absl::StatusOr<const LlvmApi*> LoadLlvmObject(const char* file) {
  // Local: nothing of this LLVM is visible to another one in the process. Now: a missing symbol is an error
  // here and not in the middle of a forward.
  constexpr int kFlags = RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE;
  // Beside the Python module or the program first, then where the program's runpath and the system look.
  const std::string beside = OwnFolder() + file;
  std::string complaint;
  void* object = nullptr;
  for (const std::string& path : {beside, std::string(file)}) {
    object = dlopen(path.c_str(), kFlags);
    if (object != nullptr) break;
    const char* const error = dlerror();
    absl::StrAppend(&complaint, complaint.empty() ? "" : "; ", error == nullptr ? path : error);
  }
  if (object == nullptr) {
    return absl::NotFoundError(absl::StrCat("looked for it as ", beside, " and by the loader's rules: ", complaint));
  }
  const auto api = reinterpret_cast<LlvmApiFunction>(dlsym(object, kLlvmApiFunction));
  if (api == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(file, " has no ", kLlvmApiFunction));
  }
  const LlvmApi* const answer = api();
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
