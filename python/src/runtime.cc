// Dispatch counts, the kernel cache's face, threads.
#include "clikart/runtime.h"

#include <pybind11/stl.h>

#include <memory>
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
  out["target"] = info.target;
  out["logical_cpus"] = info.logical_cpus;
  out["usable_cpus"] = info.usable_cpus;
  out["threads"] = info.threads;
  return out;
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

  m.def(
      "set_num_threads", [](int n) { Check(SetNumThreads(n)); }, py::arg("n"),
      "Threads for calls that start later; 0 chooses by the CPUs this process may use. ValueError when negative.");
  m.def("get_num_threads", &GetNumThreads, "Threads that a forward may use now.");
  m.def("cpu_info", &CpuDict,
        "The CPU as the runtime sees it: vendor, brand, isa, max_isa, features, target, logical_cpus, usable_cpus, "
        "threads.");
}

}  // namespace clikart::python
