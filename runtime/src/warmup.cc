// Packing and compiling ahead of the first request.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clikart/codegen/product.h"
#include "clikart/runtime.h"
#include "environment.h"
#include "group_core.h"
#include "layer_body.h"
#include "serve.h"
#include "status_macros.h"

namespace clikart {
namespace {

using Clock = std::chrono::steady_clock;
using Inputs = std::span<const std::pair<Shape, DType>>;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A layer, or the group that serves it, with one input dtype.
struct Task {
  std::string path;
  std::shared_ptr<Layer> layer;
  std::shared_ptr<GroupCore> core;  // of a fused part: prepared in its place
  DType input = DType::kFloat32;
};

// The dtypes of the inputs that the layer takes. A layer that takes none of them (a quantized input inside
// a float model, say) is prepared for all it can take.
std::vector<DType> InputsOf(const Layer& layer, Inputs inputs) {
  const bool integer = layer.body() != nullptr && layer.body()->traits().spec.contraction == ir::Contraction::kInteger;
  std::vector<DType> dtypes;
  for (const auto& [shape, dtype] : inputs) {
    const bool taken = integer ? dtype == DType::kInt8 || dtype == DType::kUInt8 : ir::IsFloat(dtype);
    if (taken && std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  if (!dtypes.empty()) return dtypes;
  return integer ? std::vector<DType>{DType::kInt8, DType::kUInt8} : std::vector<DType>{DType::kFloat32};
}

std::vector<Task> TasksOf(Module& module, Inputs inputs) {
  std::vector<Task> tasks;
  std::set<const GroupCore*> cores;
  for (const auto& [path, child] : module.NamedModules()) {
    const std::shared_ptr<Layer> layer = std::dynamic_pointer_cast<Layer>(child);
    if (layer == nullptr) continue;
    Task task;
    task.path = path;
    task.layer = layer;
    if (layer->body() != nullptr) task.core = layer->body()->state()->group;
    if (task.core != nullptr && !cores.insert(task.core.get()).second) continue;
    for (DType dtype : InputsOf(*layer, inputs)) {
      task.input = dtype;
      tasks.push_back(task);
    }
  }
  return tasks;
}

WarmupItem Finish(const Task& task) {
  const Clock::time_point start = Clock::now();
  absl::StatusOr<std::vector<std::string>> signatures;
  const std::shared_ptr<const GroupPlan> plan = task.core == nullptr ? nullptr : task.core->plan();
  if (plan != nullptr) {
    signatures = task.core->Prepare(*plan, task.input);
  } else {
    signatures = task.layer->Prepare({}, task.input);
  }
  WarmupItem item;
  item.layer = task.path;
  item.seconds = Since(start);
  item.status = signatures.status();
  if (signatures.ok()) item.kernel = absl::StrJoin(*signatures, " + ");
  return item;
}

// Collects items and tells the caller of each.
class Recorder {
 public:
  Recorder(int64_t total, const WarmupProgress& progress) : total_(total), progress_(progress) {}

  absl::Status Add(WarmupItem item) {
    report_.items.push_back(std::move(item));
    return Advance(report_.items.back());
  }
  absl::Status Skip() { return Advance({}); }
  WarmupReport Report() {
    report_.compiled = GetKernelStats().compiled - compiled_before_;
    report_.seconds = Since(start_);
    return std::move(report_);
  }

 private:
  absl::Status Advance(const WarmupItem& item) {
    ++done_;
    if (progress_ == nullptr || progress_(done_, total_, item)) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("warm-up cancelled after ", done_, " of ", total_, " steps"));
  }

  const int64_t total_;
  const WarmupProgress& progress_;
  const Clock::time_point start_ = Clock::now();
  const int64_t compiled_before_ = GetKernelStats().compiled;
  int64_t done_ = 0;
  WarmupReport report_;
};

}  // namespace

absl::StatusOr<WarmupReport> Warmup(Module& module, Inputs inputs, const WarmupProgress& progress) {
  const std::vector<Task> tasks = TasksOf(module, inputs);
  Recorder recorder(static_cast<int64_t>(tasks.size() + inputs.size()), progress);
  for (const Task& task : tasks) CLIKART_RETURN_IF_ERROR(recorder.Add(Finish(task)));
  // A forward where the module defines one: tables of convolutions and the pool's threads are then ready too.
  for (const auto& [shape, dtype] : inputs) {
    const Clock::time_point began = Clock::now();
    WarmupItem item;
    const absl::StatusOr<Tensor> x = Tensor::Zeros(shape, dtype);
    item.status = x.ok() ? module.Forward(*x).status() : x.status();
    item.seconds = Since(began);
    CLIKART_RETURN_IF_ERROR(absl::IsUnimplemented(item.status) ? recorder.Skip() : recorder.Add(std::move(item)));
  }
  return recorder.Report();
}

absl::StatusOr<WarmupReport> Warmup(std::span<const std::string> signatures, const WarmupProgress& progress) {
  Recorder recorder(static_cast<int64_t>(signatures.size()), progress);
  for (const std::string& signature : signatures) {
    const Clock::time_point start = Clock::now();
    WarmupItem item;
    absl::StatusOr<ir::KernelSpec> spec = ir::KernelSpec::Parse(signature.substr(0, signature.rfind('@')));
    item.status = spec.status();
    if (spec.ok()) {
      spec->interleave = codegen::InterleaveFor(spec->contraction, spec->w, HostTarget(), ProcessMath());
      spec->product = codegen::ProductFor(*spec, HostTarget(), ProcessMath());
      const absl::StatusOr<std::shared_ptr<const Kernel>> kernel = KernelCache::Instance().GetOrCompile(*spec);
      item.status = kernel.status();
      if (kernel.ok()) item.kernel = (*kernel)->signature;
    }
    if (item.kernel.empty()) item.kernel = signature;
    item.seconds = Since(start);
    CLIKART_RETURN_IF_ERROR(recorder.Add(std::move(item)));
  }
  return recorder.Report();
}

}  // namespace clikart
