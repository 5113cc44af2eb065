// Dispatch counts, the kernel cache's face, warm-up, threads.
#include "clikart/runtime.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "errors.h"
#include "modules.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

// The context manager: counts from __enter__ to __exit__, readable before and after that.
class DispatchCount {
 public:
  void Enter() {
    if (counter_) RaiseRuntime("count_dispatches(): entered twice");
    counter_ = std::make_unique<DispatchCounter>();
    thread_ = std::this_thread::get_id();
  }
  void Exit() {
    if (!counter_) return;
    if (thread_ != std::this_thread::get_id())
      RaiseRuntime("count_dispatches(): left by another thread than entered it");
    total_ = counter_->total();
    by_kernel_ = counter_->by_kernel();
    counter_.reset();
  }
  int64_t total() const { return counter_ ? counter_->total() : total_; }
  py::dict by_kernel() const {
    py::dict out;
    for (const auto& [kernel, count] : counter_ ? counter_->by_kernel() : by_kernel_) out[py::str(kernel)] = count;
    return out;
  }

 private:
  std::unique_ptr<DispatchCounter> counter_;
  std::thread::id thread_;
  int64_t total_ = 0;
  absl::btree_map<std::string, int64_t> by_kernel_;
};

py::dict ToDict(const KernelInfo& info) {
  py::dict out;
  out["signature"] = info.signature;
  out["emitter"] = info.emitter;
  out["isa"] = info.isa;
  out["code_bytes"] = info.code_bytes;
  out["jit_seconds"] = info.jit_seconds;
  out["hits"] = info.hits;
  out["loaded"] = info.loaded;
  return out;
}

py::dict StatsDict() {
  const KernelStats stats = GetKernelStats();
  py::dict rejections;
  for (const auto& [reason, count] : stats.rejections) rejections[py::str(reason)] = count;
  py::dict out;
  out["entries"] = stats.entries;
  out["code_bytes"] = stats.code_bytes;
  out["compiled"] = stats.compiled;
  out["loaded"] = stats.loaded;
  out["hits"] = stats.hits;
  out["stored"] = stats.stored;
  out["quarantined"] = stats.quarantined;
  out["rejections"] = rejections;
  return out;
}

py::dict CpuDict() {
  const CpuInfo info = GetCpuInfo();
  py::dict out;
  out["vendor"] = info.vendor;
  out["brand"] = info.brand;
  out["isa"] = info.isa;
  out["max_isa"] = info.max_isa;
  out["features"] = info.features;
  out["logical_cpus"] = info.logical_cpus;
  out["usable_cpus"] = info.usable_cpus;
  out["threads"] = info.threads;
  return out;
}

// `progress` is called as progress(done, total, item) after each item, and a Ctrl-C is seen there.
WarmupReport WarmupWith(Module& module, const std::vector<std::pair<py::object, DType>>& inputs,
                        const py::object& progress) {
  std::vector<std::pair<Shape, DType>> items;
  for (const auto& [shape, dtype] : inputs) items.emplace_back(ToShape(shape), dtype);
  std::optional<py::error_already_set> raised;
  const WarmupProgress report_progress = [&](int64_t done, int64_t total, const WarmupItem& item) {
    const HeldGil gil;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!progress.is_none()) progress(done, total, item);
    } catch (py::error_already_set& error) {
      raised.emplace(std::move(error));
      return false;
    }
    return true;
  };
  absl::StatusOr<WarmupReport> report;
  {
    ReleasedGil released;
    report = Warmup(module, items, report_progress);
  }
  if (raised) throw py::error_already_set(std::move(*raised));
  return Unwrap(std::move(report));
}

}  // namespace

void BindRuntime(py::module_& m) {
  py::class_<DispatchCount>(m, "DispatchCount",
                            "Kernel launches of this thread's forwards, while the `with` block lasts.")
      .def(py::init<>())
      .def("__enter__",
           [](const py::object& self) {
             py::cast<DispatchCount&>(self).Enter();
             return self;
           })
      .def("__exit__", [](DispatchCount& self, const py::args&) { self.Exit(); })
      .def_property_readonly("total", &DispatchCount::total)
      .def_property_readonly("by_kernel", &DispatchCount::by_kernel, "dict: launches by kernel signature.");

  m.def("kernels_list", [] {
    py::list out;
    for (const KernelInfo& info : ListKernels()) out.append(ToDict(info));
    return out;
  });
  m.def("kernels_stats", &StatsDict);
  m.def("kernels_clear", &ClearKernels);

  py::class_<WarmupItem>(m, "WarmupItem", "One layer of a warm-up.")
      .def_readonly("layer", &WarmupItem::layer, "Its name in the model.")
      .def_property_readonly(
          "kernel",
          [](const WarmupItem& item) -> py::object {
            if (item.kernel.empty()) return py::none();
            return py::str(item.kernel);
          },
          "Signature of the kernel that will serve it, or None.")
      .def_readonly("seconds", &WarmupItem::seconds)
      .def_property_readonly(
          "error",
          [](const WarmupItem& item) -> py::object {
            if (item.status.ok()) return py::none();
            return py::str(std::string(item.status.message()));
          },
          "Why the layer could not be prepared, or None.")
      .def("__repr__", [](const WarmupItem& item) {
        return "WarmupItem(" + item.layer + ": " +
               (item.status.ok() ? item.kernel : std::string(item.status.message())) + ")";
      });
  py::class_<WarmupReport>(m, "WarmupReport", "What a warm-up prepared.")
      .def_readonly("items", &WarmupReport::items)
      .def_readonly("compiled", &WarmupReport::compiled, "Kernels that were new.")
      .def_readonly("seconds", &WarmupReport::seconds)
      .def("__repr__", [](const WarmupReport& report) {
        const auto failed = std::count_if(report.items.begin(), report.items.end(),
                                          [](const WarmupItem& item) { return !item.status.ok(); });
        return "WarmupReport(items=" + std::to_string(report.items.size()) + ", failed=" + std::to_string(failed) +
               ", compiled=" + std::to_string(report.compiled) + ", seconds=" + std::to_string(report.seconds) + ")";
      });
  m.def("warmup", &WarmupWith);

  m.def(
      "set_num_threads", [](int n) { Check(SetNumThreads(n)); }, py::arg("n"),
      "Threads for calls that start later; 0 chooses by the CPUs this process may use. ValueError when negative.");
  m.def("get_num_threads", &GetNumThreads, "Threads that a forward may use now.");
  m.def("cpu_info", &CpuDict,
        "The CPU as the runtime sees it: vendor, brand, isa, max_isa, features, logical_cpus, usable_cpus, threads.");
}

}  // namespace clikart::python
