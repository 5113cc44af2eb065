// Generated kernels on disk: what the process's cache asks before it emits, and where it leaves what was
// emitted. Whatever goes wrong here costs time, never a kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "background_writer.h"
#include "build_identity.h"
#include "clikart/cache/folder.h"
#include "clikart/codegen/driver.h"
#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"

namespace clikart {

struct Environment;

struct KernelStoreOptions {
  std::vector<cache::FolderOptions> folders;  // asked in this order; those with write access are written
  std::span<const codegen::Driver> drivers = codegen::Drivers();
  std::string build = std::string(BuildIdentity());
};

class KernelStore {
 public:
  explicit KernelStore(const KernelStoreOptions& options);
  // As the settings say; null where they say nothing of a disk.
  static std::shared_ptr<KernelStore> Create(const Environment& environment);

  struct Loaded {
    codegen::EmittedKernel kernel;
    double jit_seconds = 0;  // what generating it took
  };
  std::optional<Loaded> Load(const ir::KernelSpec& spec, const codegen::Target& target, std::string_view emitter);
  // Returns at once; Flush waits for the files.
  void Save(const codegen::EmittedKernel& kernel, const codegen::Target& target, double jit_seconds);
  // Writes down what this process did, for who looks into the folder.
  struct Hits {
    ir::KernelSpec spec;
    std::string emitter;
    int64_t count = 0;
  };
  void Record(std::span<const Hits> hits, const codegen::Target& target, cache::Usage usage);
  bool Flush(std::chrono::milliseconds patience) const { return writer_.Flush(patience); }

  int64_t stored() const { return stored_; }
  int64_t quarantined() const { return quarantined_; }
  BackgroundWriter& writer() { return writer_; }

 private:
  // A folder, and what was said of it already.
  struct Layer {
    explicit Layer(const cache::FolderOptions& options) : folder(options) {}
    cache::Folder folder;
    std::atomic<bool> refusal_told{false}, failure_told{false};
  };
  static void Tell(Layer& layer, const absl::Status& status);
  void Write(std::span<const cache::Entry> entries);

  const std::span<const codegen::Driver> drivers_;
  const std::string build_;
  std::vector<std::unique_ptr<Layer>> layers_;
  const int64_t born_;  // names this process together with its id
  std::atomic<int64_t> stored_{0}, quarantined_{0};
  BackgroundWriter writer_;  // last: it writes until it is gone
};

}  // namespace clikart
