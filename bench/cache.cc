// What a first request waits for its kernel: generated, loaded from disk, found in memory.
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cases.h"
#include "clikart/codegen/emitter.h"
#include "environment.h"
#include "kernel_cache.h"

namespace clikart::bench {
namespace {

constexpr int kKernels = 32;
// The bound for a disk hit: less than any emitter takes.
constexpr double kDiskHitUs = 100;

ir::KernelSpec SpecNumber(int i) {
  ir::KernelSpec spec;
  spec.n = 4096 + i;
  spec.k = 4096;
  const std::span<const ir::Activation> activations = ir::AllActivations();
  do {
    spec.activation = activations[static_cast<size_t>(i++) % activations.size()];
  } while (spec.gated());
  return spec;
}

// The median of asking for each kernel once, in microseconds; how many were compiled.
std::pair<double, int64_t> Ask(KernelCache& cache) {
  const int64_t before = cache.Stats().compiled;
  std::vector<double> seconds;
  for (int i = 0; i < kKernels; ++i) {
    const ir::KernelSpec spec = SpecNumber(i);
    seconds.push_back(Seconds(1, [&] {
      if (!cache.GetOrCompile(spec).ok()) std::abort();
    }));
  }
  return {Median(seconds) * 1e6, cache.Stats().compiled - before};
}

void Add(const Context& context, std::string name, double us, std::optional<double> at_most = {}) {
  context.report.Add({.name = std::move(name),
                      .measured = us,
                      .unit = "us",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = at_most});
}

void Measure(const Context& context, const codegen::Emitter& emitter, const std::string& folder) {
  const codegen::Emitter* const only[] = {&emitter};
  const auto make = [&] {
    KernelCacheOptions options;
    options.emitters = only;
    options.target = HostTarget();
    KernelStoreOptions store;
    store.folders = {{.path = folder}};
    options.store = std::make_shared<KernelStore>(store);
    return std::make_unique<KernelCache>(options);
  };
  const std::string name(emitter.name());
  auto cache = make();
  if (!cache->GetOrCompile(SpecNumber(0)).ok()) return;  // this machine or build lacks what it needs
  cache->Clear();
  cache->Flush(std::chrono::minutes(1));  // else its file may come while the folder goes
  std::filesystem::remove_all(folder);
  Add(context, name + ": generated", Ask(*cache).first);
  cache->Flush(std::chrono::minutes(1));
  std::vector<double> disk, memory;
  for (int i = 0; i < context.rounds; ++i) {
    cache = make();
    const auto [us, compiled] = Ask(*cache);
    if (compiled != 0) std::abort();
    disk.push_back(us);
    memory.push_back(Ask(*cache).first);
  }
  Add(context, name + ": loaded from disk", Median(disk), kDiskHitUs);
  Add(context, name + ": found in memory", Median(memory));
}

}  // namespace

void MeasureCache(const Context& context) {
  context.report.Section("A kernel for a first request (microseconds)");
  std::string path = (std::filesystem::temp_directory_path() / "clikart-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) std::abort();
  for (const codegen::Emitter* emitter : codegen::Emitters()) {
    if (emitter->needs_executable_memory()) Measure(context, *emitter, path + "/cache");
  }
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace clikart::bench
