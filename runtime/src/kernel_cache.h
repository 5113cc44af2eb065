// The process's kernels by signature: one compilation however many threads ask, a byte budget, and
// counters for what was rejected.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/kernel.h"
#include "clikart/runtime.h"

namespace clikart {

class ExecutableBlock;  // executable_memory.h: frees itself

// A compiled kernel. Plans share it; the cache may drop it while plans still run it.
struct Kernel {
  codegen::KernelImage image;
  std::string signature;  // spec.ToString() + "@" + isa + "/" + emitter
  std::string emitter;
  codegen::IsaLevel isa;
  int64_t code_bytes = 0;
  double jit_seconds = 0;
  std::vector<codegen::Rejection> rejections;  // of the emitters before the one that served
  std::shared_ptr<ExecutableBlock> code;
  ~Kernel();
};

class KernelCache {
 public:
  static KernelCache& Instance();

  // The kernel for `spec` on this process's target, compiled by the first emitter that takes it
  // (CLIKART_EMITTER narrows the list). With CLIKART_STRICT=1 a fallback past the first candidate is
  // an error that names the rejections.
  absl::StatusOr<std::shared_ptr<const Kernel>> GetOrCompile(const ir::KernelSpec& spec);
  // Counts a refusal that was decided above the emitters (a group that runs side by side, say).
  void CountRejection(std::string_view reason);

  std::vector<KernelInfo> List() const;
  KernelStats Stats() const;
  void Clear();
  void SetByteBudget(int64_t bytes);  // CLIKART_CACHE_SIZE; least recently used entries go first

 private:
  KernelCache();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace clikart
