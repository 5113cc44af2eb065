// Packing and compiling ahead of the first request.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clikart/runtime.h"
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

}  // namespace

absl::StatusOr<WarmupReport> Warmup(Module& module, Inputs inputs, const WarmupProgress& progress) {
  const Clock::time_point start = Clock::now();
  const int64_t compiled_before = GetKernelStats().compiled;
  const std::vector<Task> tasks = TasksOf(module, inputs);
  const int64_t total = static_cast<int64_t>(tasks.size() + inputs.size());
  WarmupReport report;
  int64_t done = 0;
  const auto advance = [&](const WarmupItem& item) -> absl::Status {
    ++done;
    if (progress == nullptr || progress(done, total, item)) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("warm-up cancelled after ", done, " of ", total, " steps"));
  };
  for (const Task& task : tasks) {
    report.items.push_back(Finish(task));
    CLIKART_RETURN_IF_ERROR(advance(report.items.back()));
  }
  // A forward where the module defines one: tables of convolutions and the pool's threads are then ready too.
  for (const auto& [shape, dtype] : inputs) {
    const Clock::time_point began = Clock::now();
    WarmupItem item;
    const absl::StatusOr<Tensor> x = Tensor::Zeros(shape, dtype);
    item.status = x.ok() ? module.Forward(*x).status() : x.status();
    item.seconds = Since(began);
    const bool defined = !absl::IsUnimplemented(item.status);
    if (!defined) item.status = absl::OkStatus();
    CLIKART_RETURN_IF_ERROR(advance(item));
    if (defined) report.items.push_back(std::move(item));
  }
  report.compiled = GetKernelStats().compiled - compiled_before;
  report.seconds = Since(start);
  return report;
}

}  // namespace clikart
