#include "folder_compiler.h"

#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "build_identity.h"
#include "clikart/codegen/driver.h"
#include "clikart/codegen/emitter.h"
#include "kernel_record.h"
#include "text.h"
#include "warmup_recorder.h"

namespace clikart {

absl::Status FolderCompiler::Usable() const {
  const absl::Status status = folder_.List().status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // it is made when first needed
}

WarmupItem FolderCompiler::Compile(const ir::KernelSpec& spec) {
  const Stopwatch stopwatch;
  WarmupItem item;
  item.kernel = spec.ToString();
  item.status = spec.Verify();
  if (item.status.ok()) Make(spec, item);
  item.seconds = stopwatch.seconds();
  return item;
}

void FolderCompiler::Make(const ir::KernelSpec& spec, WarmupItem& item) {
  for (const codegen::Emitter* emitter : codegen::Emitters()) {
    if (!emitter->needs_executable_memory()) break;  // nothing that could be kept
    if (options_.emitter != "auto" && options_.emitter != emitter->name()) {
      item.rejections.push_back(absl::StrCat("disabled: the manifest's emitter is ", options_.emitter));
      continue;
    }
    const cache::Key key = KeyOf(spec, options_.target, emitter->name(), BuildIdentity());
    const auto remember = [&] {
      const std::lock_guard lock(mutex_);
      files_[item.kernel] = key.FileName();
    };
    if (folder_.Load(key).ok()) {
      item.loaded = 1;
      return remember();
    }
    const Stopwatch stopwatch;
    auto answer = emitter->Emit(spec, options_.target);
    if (const auto* rejection = std::get_if<codegen::Rejection>(&answer)) {
      item.rejections.push_back(absl::StrCat(Text(codegen::Name(rejection->reason)), ": ", rejection->detail));
      continue;
    }
    const auto& kernel = std::get<codegen::EmittedKernel>(answer);
    const std::optional<cache::Entry> entry = ToEntry(kernel, key, codegen::Drivers(), stopwatch.seconds());
    if (!entry) {
      item.status = absl::InternalError(absl::StrCat(Text(emitter->name()), " made a kernel that cannot be kept"));
      return;
    }
    item.compiled = 1;
    item.status = folder_.Save({&*entry, 1});
    return remember();
  }
  item.rejected = 1;
}

absl::StatusOr<WarmupReport> FolderCompiler::Check(WarmupReport report) const {
  const absl::StatusOr<std::vector<cache::FileInfo>> files = folder_.List();
  if (absl::IsNotFound(files.status())) return report;  // no kernel was made
  if (!files.ok()) return files.status();
  std::set<std::string> names;
  for (const cache::FileInfo& file : *files) names.insert(file.name);
  for (WarmupItem& item : report.items) {
    const auto made = files_.find(item.kernel);
    if (!item.status.ok() || made == files_.end() || names.count(made->second) > 0) continue;
    item.status =
        absl::ResourceExhaustedError(absl::StrCat("the folder has no room for it: CLIKART_CACHE_DISK_SIZE allows ",
                                                  options_.folder.byte_budget, " bytes for all entries"));
    ++report.failed;
  }
  return report;
}

}  // namespace clikart
