// The process's kernels by signature: one compilation however many threads ask, a byte budget, and
// counters for what was rejected.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/kernel.h"
#include "clikart/runtime.h"
#include "code_listing.h"
#include "executable_memory.h"
#include "kernel_store.h"

namespace clikart {

// A compiled kernel. Plans share it; the cache may drop it while plans still run it.
struct Kernel {
  codegen::KernelImage image;
  std::string signature;  // spec.ToString() + "@" + isa + "/" + emitter
  std::string emitter;
  codegen::IsaLevel isa = codegen::IsaLevel::kBaseline;
  int64_t code_bytes = 0;
  double jit_seconds = 0;                      // what generating it took, here or where it was loaded from
  bool loaded = false;                         // from disk
  std::vector<codegen::Rejection> rejections;  // of the emitters before the one that served
  std::shared_ptr<ExecutableBlock> code;       // null where nothing was generated
  std::shared_ptr<void> listing;               // what a debugger reads of it
};

// What a cache compiles with, and for what.
struct KernelCacheOptions {
  std::span<const codegen::Emitter* const> emitters;  // best first, the one that always serves last
  codegen::Target target;
  std::string emitter = "auto";  // or the only one to try before the last
  bool strict = false;           // a rejection is an error
  bool keep = true;              // false: every call compiles (CLIKART_CACHE=off)
  CodeListing listing;           // who is told of generated code
  int64_t byte_budget = 64 << 20;
  std::shared_ptr<KernelStore> store;  // null: nothing is kept on disk
  absl::StatusOr<std::shared_ptr<ExecutableBlock>> (*make_executable)(std::span<const uint8_t>) = &MakeExecutable;
};

class KernelCache {
 public:
  // The process's own, set up from the environment; tests make theirs.
  static KernelCache& Instance();
  explicit KernelCache(const KernelCacheOptions& options);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // The kernel for `spec` on this process's target, from memory, else for the first emitter that takes it from
  // disk, else compiled
  // (CLIKART_EMITTER narrows the list; its last emitter stays). With CLIKART_STRICT=1 a fallback past the
  // first candidate is FailedPrecondition and names the rejections. A bad spec or a bad CLIKART_
  // setting is InvalidArgument.
  absl::StatusOr<std::shared_ptr<const Kernel>> GetOrCompile(const ir::KernelSpec& spec);
  // Counts a refusal that was decided above the emitters (a group that runs side by side, say).
  void CountRejection(std::string_view reason, std::string_view message);

  std::vector<KernelInfo> List() const;  // most recently used first
  // What this process asked for and got, whether or not it is still kept, in the order of its texts.
  std::vector<ir::KernelSpec> Made() const;
  KernelStats Stats() const;
  void Clear();
  // Writes down what this process did, and waits until what was compiled is on disk, at most so long.
  void Flush(std::chrono::milliseconds patience);
  void SetByteBudget(int64_t bytes);  // CLIKART_CACHE_SIZE; least recently used entries go first

  // For pthread_atfork: of the process's own, where there is one.
  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace clikart
