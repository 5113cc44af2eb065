// Packing and compiling a model ahead of its first request.
#include "clikart/warmup.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "group_core.h"
#include "layer_body.h"
#include "status_macros.h"
#include "warmup_recorder.h"

namespace clikart {
namespace {

using Inputs = std::span<const std::pair<Shape, DType>>;

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

WarmupItem Prepare(const Task& task) {
  const Stopwatch stopwatch;
  const PrepareWatch watch;
  const std::shared_ptr<const GroupPlan> plan = task.core == nullptr ? nullptr : task.core->plan();
  const absl::StatusOr<std::vector<std::string>> signatures =
      plan != nullptr ? task.core->Prepare(*plan, task.input) : task.layer->Prepare({}, task.input);
  WarmupItem item;
  item.layer = task.path;
  item.status = signatures.status();
  if (signatures.ok()) item.kernel = absl::StrJoin(*signatures, " + ");
  Take(watch, signatures.ok() ? signatures->size() : 0, item);
  item.seconds = stopwatch.seconds();
  return item;
}

// Tables of convolutions and the pool's threads are ready, too, after it.
WarmupItem Forward(Module& module, const Shape& shape, DType dtype) {
  const Stopwatch stopwatch;
  const PrepareWatch watch;
  WarmupItem item;
  const absl::StatusOr<Tensor> x = Tensor::Zeros(shape, dtype);
  item.status = x.ok() ? module.Forward(*x).status() : x.status();
  Take(watch, 0, item);
  item.seconds = stopwatch.seconds();
  return item;
}

}  // namespace

absl::StatusOr<WarmupReport> Warmup(Module& module, const WarmupOptions& options) {
  const std::vector<Task> tasks = TasksOf(module, options.inputs);
  const auto steps = static_cast<int64_t>(tasks.size());
  WarmupRecorder recorder(steps + static_cast<int64_t>(options.inputs.size()), options.progress, options.stop);
  CLIKART_RETURN_IF_ERROR(
      recorder.Run(steps, options.jobs, [&](int64_t i) { return Prepare(tasks[static_cast<size_t>(i)]); }));
  for (const auto& [shape, dtype] : options.inputs) {
    CLIKART_RETURN_IF_ERROR(recorder.Run([&] { return Forward(module, shape, dtype); }));
  }
  return recorder.Report();
}

}  // namespace clikart
