// Kernels for a machine that need not be this one, generated into a cache folder and never run.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "clikart/cache/folder.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/warmup.h"

namespace clikart {

class FolderCompiler {
 public:
  struct Options {
    codegen::Target target;
    std::string emitter = "auto";  // CLIKART_EMITTER of the processes that will ask
    cache::FolderOptions folder;
  };
  explicit FolderCompiler(const Options& options) : options_(options), folder_(options.folder) {}

  // An error where nothing can be kept there, before anything is made.
  absl::Status Usable() const;
  // Leaves the entry that a process on the target looks for first: the one of the best emitter that takes `spec`.
  // `loaded` in the item says that it was there. From any number of threads.
  WarmupItem Compile(const ir::KernelSpec& spec);
  // Fails the items whose entries the folder's byte budget has pushed out again.
  absl::StatusOr<WarmupReport> Check(WarmupReport report) const;

 private:
  void Make(const ir::KernelSpec& spec, WarmupItem& item);

  const Options options_;
  cache::Folder folder_;
  std::mutex mutex_;
  std::map<std::string, std::string> files_;  // by the kernel of an item
};

}  // namespace clikart
