#include "clikart/codegen/shared_object.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace clikart::codegen {
namespace {

// The folder of the file that this code was loaded from, with its slash; empty where it has no name.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&FindInObject), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(file.substr(0, slash + 1));
}

}  // namespace

absl::StatusOr<void*> FindInObject(const char* file, const char* function) {
  // Local: nothing of this object is visible to another one in the process. Now: a missing symbol is an error
  // here and not in the middle of a call.
  constexpr int kFlags = RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE;
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
  void* const address = dlsym(object, function);
  if (address == nullptr) return absl::FailedPreconditionError(absl::StrCat(file, " has no ", function));
  return address;
}

}  // namespace clikart::codegen
