#include "code_listing.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gdb_listing.h"
#include "jitdump.h"

namespace clikart {
namespace {

// Other generators of code in the process may write to the same file: it is only ever appended to.
void AppendPerfMap(const std::string& signature, const uint8_t* code, size_t bytes) {
  const std::string path = absl::StrCat("/tmp/perf-", getpid(), ".map");
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  const std::string line = absl::StrFormat("%x %x %s\n", reinterpret_cast<uintptr_t>(code), bytes, signature);
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

}  // namespace

std::shared_ptr<void> ListCode(const CodeListing& listing, const std::string& signature,
                               const codegen::EmittedKernel& kernel, const uint8_t* code) {
  if (listing.perf_map) AppendPerfMap(signature, code, kernel.code.size());
  if (listing.jitdump) {
    Jitdump::Instance().Append(listing.folder, signature, {code, static_cast<size_t>(kernel.instruction_bytes)});
  }
  return listing.gdb ? ListForGdb(signature, kernel, code) : nullptr;
}

}  // namespace clikart
