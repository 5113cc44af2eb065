// Packing and compiling before the first request: for a model at hand, or for the kernels of an earlier run, on this
// machine or for another one. docs/warmup.md has the whole story.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/codegen/product.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/nn.h"
#include "clikart/tensor.h"

namespace clikart {

// One layer and input dtype, one kernel of a manifest, or the model's own forward.
struct WarmupItem {
  std::string layer;   // name in the model; empty for kernels of a manifest
  std::string kernel;  // signatures, joined by " + "; empty where there is none
  // Kernels of this item: made here, found on disk, found in memory, and those that no emitter makes code for, which
  // portable C++ serves.
  int64_t compiled = 0, loaded = 0, cached = 0, rejected = 0;
  int64_t packed = 0;                   // layers whose weights were packed
  std::vector<std::string> rejections;  // why emitters refused, also where a later one served
  double seconds = 0;
  absl::Status status;
};

struct WarmupReport {
  std::vector<WarmupItem> items;  // in the order of the model or the manifest
  int64_t compiled = 0, loaded = 0, cached = 0, rejected = 0, packed = 0;
  int64_t failed = 0;  // items
  double seconds = 0;
};

// done, total, the item just finished; on the caller's thread, one call at a time. False cancels.
using WarmupProgress = std::function<bool(int64_t, int64_t, const WarmupItem&)>;

struct WarmupOptions {
  std::vector<std::pair<Shape, DType>> inputs;
  WarmupProgress progress = {};
  int jobs = 0;  // kernels compiled at a time; 0: as many as GetNumThreads()
  std::stop_token stop = {};
};

// Packs and compiles every layer that inputs of these dtypes can reach, and runs the module's own forward, where it
// has one, on zeros of each shape. Layers that fail are listed; others go on. Cancelled when `progress` or `stop`
// says so: what is ready by then stays ready, and no kernel is left half made.
absl::StatusOr<WarmupReport> Warmup(Module& module, const WarmupOptions& options = {});

struct ManifestOptions {
  // As codegen::ParseTarget takes it: "avx2", or a machine's features as its manifests give them. Empty: this
  // process's.
  std::string target = {};
  // Where entries are written; empty: CLIKART_CACHE_DIR, which `target` alone asks for.
  std::string folder = {};
  bool for_all_users = false;  // a folder that is made may be read by everybody
  WarmupProgress progress = {};
  int jobs = 0;
  std::stop_token stop = {};
};

// What a run asked of its kernels, without what followed from its machine: which instruction multiplies and how weights
// lie are decided anew for each target. So one manifest serves a fleet of different machines.
class WarmupManifest {
 public:
  // The kernels that this process has asked for so far. An error of a CLIKART_ setting is returned.
  static absl::StatusOr<WarmupManifest> Record();

  // The text form, one kernel a line. InvalidArgument names the line, what was found and what is expected.
  static absl::StatusOr<WarmupManifest> Parse(std::string_view text);
  std::string ToString() const;
  // A file of it: NotFound or Unavailable where the system refuses, errors of Parse name the file. A file appears whole
  // or not at all.
  static absl::StatusOr<WarmupManifest> Load(const std::string& path);
  absl::Status Save(const std::string& path) const;

  // A kernel by its signature, as ListKernels() or KernelSpec::ToString() give it. One that is there already is not
  // added again.
  absl::Status Add(std::string_view signature);
  void Add(const ir::KernelSpec& spec);

  // Without target and folder: into this process's memory, under its settings, as a first call of each kernel would.
  // Else: into a cache folder, under the key that a process on the target asks for when it runs with the settings of
  // the recorded one; nothing is run. Kernels that fail are listed; others go on. InvalidArgument for a bad target,
  // Cancelled as for Warmup.
  absl::StatusOr<WarmupReport> Compile(const ManifestOptions& options = {}) const;

  const std::vector<ir::KernelSpec>& kernels() const { return kernels_; }
  // The settings and the machine of the run.
  codegen::MathMode math = codegen::MathMode::kNative;
  std::string emitter = "auto";
  std::string target;  // Target::ToString, for who reads it; may be empty

  friend bool operator==(const WarmupManifest&, const WarmupManifest&) = default;

 private:
  std::vector<ir::KernelSpec> kernels_;  // as IntentOf (kernel_intent.h) has them
};

}  // namespace clikart
