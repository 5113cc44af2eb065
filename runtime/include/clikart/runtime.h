// What surrounds the layers: threads, the kernel cache's face, dispatch counts, warm-up, settings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/nn.h"
#include "clikart/tensor.h"

namespace clikart {

// Applies to calls that start later. 0 is automatic (CLIKART_NUM_THREADS, else the CPUs this process
// may use under its affinity and cgroup quota); negative: InvalidArgument; more than 4 times the
// machine's CPUs is clamped to that with one warning on stderr.
absl::Status SetNumThreads(int count);
int GetNumThreads();

// Counts the kernel launches of forwards that this thread makes while it lives. Nests: an outer
// counter sees what inner ones see.
class DispatchCounter {
 public:
  DispatchCounter();
  ~DispatchCounter();
  DispatchCounter(const DispatchCounter&) = delete;
  DispatchCounter& operator=(const DispatchCounter&) = delete;
  int64_t total() const;
  absl::btree_map<std::string, int64_t> by_kernel() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct KernelInfo {
  std::string signature, emitter, isa;
  int64_t code_bytes = 0;
  double jit_seconds = 0;  // what generating it took, in this process or in the one that left it on disk
  int64_t hits = 0;
  bool loaded = false;  // from disk
};

struct KernelStats {
  int64_t entries = 0, code_bytes = 0;
  int64_t compiled = 0;                              // code that this process generated
  int64_t loaded = 0;                                // code from disk
  int64_t hits = 0;                                  // answered from memory
  int64_t stored = 0;                                // written to disk so far, behind the callers' backs
  int64_t quarantined = 0;                           // bad files found on disk and moved aside
  absl::btree_map<std::string, int64_t> rejections;  // by reason name
};

std::vector<KernelInfo> ListKernels();  // most recently used first
KernelStats GetKernelStats();
void ClearKernels();  // kernels still held by plans live on until those let go

struct WarmupItem {
  std::string layer;   // name in the model
  std::string kernel;  // signature, or empty
  double seconds = 0;
  absl::Status status;
};
struct WarmupReport {
  std::vector<WarmupItem> items;
  int64_t compiled = 0;
  double seconds = 0;
};
// done, total, the item just finished; false cancels.
using WarmupProgress = std::function<bool(int64_t, int64_t, const WarmupItem&)>;
// Packs and compiles every layer that `inputs` can reach. Layers that fail are listed; others go on.
absl::StatusOr<WarmupReport> Warmup(Module& module, std::span<const std::pair<Shape, DType>> inputs,
                                    const WarmupProgress& progress = {});

// Compiles the kernels of a manifest: signatures as ListKernels() gave them in an earlier run, on this
// machine or another one (instructions, packing and emitter are decided anew). A line that does not
// parse is listed with its error.
absl::StatusOr<WarmupReport> Warmup(std::span<const std::string> signatures, const WarmupProgress& progress = {});

struct CpuInfo {
  std::string vendor, brand, isa, max_isa;  // effective level, and the cap in force
  std::vector<std::string> features;
  int logical_cpus = 0, usable_cpus = 0, threads = 0;
};
CpuInfo GetCpuInfo();
std::string_view Version();

// The CLIKART_ settings, read once at first use; a bad value is an error that lists the good ones.
absl::Status CheckEnvironment();

}  // namespace clikart
