// What surrounds the layers: threads, the kernel cache's face, dispatch counts, settings.
#pragma once

#include <cstdint>
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

struct CpuInfo {
  std::string vendor, brand, isa, max_isa;  // effective level, and the cap in force
  std::vector<std::string> features;
  std::string target;  // what kernels are made for: "avx2: sse42 avx2"
  int logical_cpus = 0, usable_cpus = 0, threads = 0;
};
CpuInfo GetCpuInfo();
std::string_view Version();

// The CLIKART_ settings, read once at first use; a bad value is an error that lists the good ones.
absl::Status CheckEnvironment();

}  // namespace clikart
