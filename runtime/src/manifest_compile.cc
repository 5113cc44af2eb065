// Compiling what a manifest lists: for this process, or into a folder for others.
#include <memory>
#include <utility>

#include "clikart/cache/folder.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/target.h"
#include "clikart/warmup.h"
#include "environment.h"
#include "folder_compiler.h"
#include "kernel_cache.h"
#include "kernel_intent.h"
#include "status_macros.h"
#include "warmup_recorder.h"

namespace clikart {
namespace {

// As a layer's first call of the kernel would.
WarmupItem CompileHere(const ir::KernelSpec& intent) {
  const Stopwatch stopwatch;
  const PrepareWatch watch;
  const ir::KernelSpec spec = SpecFor(intent, HostTarget(), ProcessMath());
  const absl::StatusOr<std::shared_ptr<const Kernel>> kernel = KernelCache::Instance().GetOrCompile(spec);
  WarmupItem item;
  item.kernel = kernel.ok() ? (*kernel)->signature : spec.ToString();
  item.status = kernel.status();
  Take(watch, kernel.ok() ? 1 : 0, item);
  item.seconds = stopwatch.seconds();
  return item;
}

absl::StatusOr<FolderCompiler::Options> FolderOptionsOf(const WarmupManifest& manifest,
                                                        const ManifestOptions& options) {
  CLIKART_ASSIGN_OR_RETURN(const Environment environment, Environment::Get());
  FolderCompiler::Options folder;
  folder.target = HostTarget();
  if (!options.target.empty()) {
    CLIKART_ASSIGN_OR_RETURN(folder.target, codegen::ParseTarget(options.target));
  }
  folder.emitter = manifest.emitter;
  folder.folder.path = options.folder.empty() ? environment.cache_dir : options.folder;
  folder.folder.byte_budget = environment.cache_disk_bytes;
  folder.folder.folder_mode = static_cast<mode_t>(options.for_all_users ? 0755 : 0700);
  if (folder.folder.path.empty()) {
    return absl::FailedPreconditionError("warm-up: no home folder is known; name a folder, or set CLIKART_CACHE_DIR");
  }
  return folder;
}

}  // namespace

absl::StatusOr<WarmupReport> WarmupManifest::Compile(const ManifestOptions& options) const {
  const auto steps = static_cast<int64_t>(kernels_.size());
  WarmupRecorder recorder(steps, options.progress, options.stop);
  const auto intent = [&](int64_t i) -> const ir::KernelSpec& { return kernels_[static_cast<size_t>(i)]; };
  if (options.target.empty() && options.folder.empty()) {
    CLIKART_RETURN_IF_ERROR(CheckEnvironment());
    CLIKART_RETURN_IF_ERROR(recorder.Run(steps, options.jobs, [&](int64_t i) { return CompileHere(intent(i)); }));
    return recorder.Report();
  }
  CLIKART_ASSIGN_OR_RETURN(const FolderCompiler::Options folder, FolderOptionsOf(*this, options));
  FolderCompiler compiler(folder);
  CLIKART_RETURN_IF_ERROR(compiler.Usable());
  CLIKART_RETURN_IF_ERROR(recorder.Run(
      steps, options.jobs, [&](int64_t i) { return compiler.Compile(SpecFor(intent(i), folder.target, math)); }));
  return compiler.Check(recorder.Report());
}

}  // namespace clikart
