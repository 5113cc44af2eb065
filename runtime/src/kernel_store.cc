#include "kernel_store.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "environment.h"
#include "kernel_record.h"

namespace clikart {

KernelStore::KernelStore(const KernelStoreOptions& options)
    : drivers_(options.drivers),
      build_(options.build),
      born_(std::chrono::system_clock::now().time_since_epoch().count()),
      writer_([this](std::span<const cache::Entry> entries) { Write(entries); }) {
  for (const cache::FolderOptions& folder : options.folders) layers_.push_back(std::make_unique<Layer>(folder));
}

std::shared_ptr<KernelStore> KernelStore::Create(const Environment& environment) {
  if (environment.cache != Environment::Cache::kDisk) return nullptr;
  KernelStoreOptions options;
  if (!environment.cache_dir.empty()) {
    options.folders.push_back({.path = environment.cache_dir, .byte_budget = environment.cache_disk_bytes});
  }
  options.folders.push_back({.path = environment.cache_system_dir, .access = cache::Access::kReadOnly});
  return std::make_shared<KernelStore>(options);
}

void KernelStore::Tell(Layer& layer, const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsPermissionDenied(status)) {
    if (!layer.refusal_told.exchange(true)) Log(0, absl::StrCat("warning: ", message));
  } else if (!absl::IsNotFound(status)) {
    if (!layer.failure_told.exchange(true)) Log(1, message);
  }
}

std::optional<KernelStore::Loaded> KernelStore::Load(const ir::KernelSpec& spec, const codegen::Target& target,
                                                     std::string_view emitter) {
  const cache::Key key = KeyOf(spec, target, emitter, build_);
  for (const auto& layer : layers_) {
    absl::StatusOr<cache::Entry> entry = layer->folder.Load(key);
    if (absl::IsDataLoss(entry.status())) {
      // One warning: after a crash of the machine there may be many such files.
      const bool first = quarantined_.fetch_add(1) == 0;
      Log(first ? 0 : 1, absl::StrCat(first ? "warning: " : "", std::string(entry.status().message()),
                                      "; the kernel is generated again"));
    } else if (!entry.ok()) {
      Tell(*layer, entry.status());
    } else {
      const double jit_seconds = static_cast<double>(entry->jit_nanoseconds) * 1e-9;
      std::optional<codegen::EmittedKernel> kernel = FromEntry(*std::move(entry), spec, drivers_);
      if (kernel) return Loaded{*std::move(kernel), jit_seconds};
    }
  }
  return std::nullopt;
}

void KernelStore::Save(const codegen::EmittedKernel& kernel, const codegen::Target& target, double jit_seconds) {
  std::optional<cache::Entry> entry =
      ToEntry(kernel, KeyOf(kernel.spec, target, kernel.emitter, build_), drivers_, jit_seconds);
  if (entry) writer_.Add(*std::move(entry));
}

void KernelStore::Record(std::span<const Hits> hits, const codegen::Target& target, cache::Usage usage) {
  for (const Hits& hit : hits) usage.hits[KeyOf(hit.spec, target, hit.emitter, build_).Name()] += hit.count;
  const std::string process = absl::StrCat(getpid(), "-", born_);
  for (const auto& layer : layers_) {
    if (const absl::Status status = layer->folder.Record(usage, process); !status.ok()) Tell(*layer, status);
  }
}

void KernelStore::Write(std::span<const cache::Entry> entries) {
  for (const auto& layer : layers_) {
    if (layer->folder.options().access == cache::Access::kReadOnly) continue;
    int64_t saved = 0;
    const absl::Status status = layer->folder.Save(entries, &saved);
    stored_ += saved;
    if (!status.ok()) Tell(*layer, status);
  }
}

}  // namespace clikart
