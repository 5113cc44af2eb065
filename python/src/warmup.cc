// Warm-up and manifests.
#include "clikart/warmup.h"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "modules.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

using Path = std::filesystem::path;

// Calls run(progress) without the GIL. `show`, where it is not None, is called as show(done, total, item) after each
// item, and a Ctrl-C is seen there; what is raised cancels the work and is raised here.
template <typename Run>
WarmupReport RunShowing(const py::object& show, const Run& run) {
  std::optional<py::error_already_set> raised;
  const WarmupProgress progress = [&](int64_t done, int64_t total, const WarmupItem& item) {
    const HeldGil gil;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!show.is_none()) show(done, total, item);
    } catch (py::error_already_set& error) {
      raised.emplace(std::move(error));
      return false;
    }
    return true;
  };
  absl::StatusOr<WarmupReport> report;
  {
    ReleasedGil released;
    report = run(progress);
  }
  if (raised) throw py::error_already_set(std::move(*raised));
  return Unwrap(std::move(report));
}

WarmupReport WarmupModule(Module& module, const std::vector<std::pair<py::object, DType>>& inputs,
                          const py::object& show) {
  WarmupOptions options;
  for (const auto& [shape, dtype] : inputs) options.inputs.emplace_back(ToShape(shape), dtype);
  return RunShowing(show, [&](const WarmupProgress& progress) {
    options.progress = progress;
    return Warmup(module, options);
  });
}

WarmupReport CompileManifest(const WarmupManifest& manifest, const std::string& target, const Path& folder, int jobs,
                             const py::object& show) {
  if (jobs < 0) Raise(absl::InvalidArgumentError("jobs is negative; 0 chooses by the threads of a forward"));
  return RunShowing(show, [&](const WarmupProgress& progress) {
    return manifest.Compile({.target = target, .folder = folder.string(), .progress = progress, .jobs = jobs});
  });
}

py::object TextOrNone(const std::string& text) { return text.empty() ? py::none() : py::object(py::str(text)); }

std::string Counts(int64_t compiled, int64_t loaded, int64_t cached, int64_t rejected, int64_t packed) {
  return "compiled=" + std::to_string(compiled) + ", loaded=" + std::to_string(loaded) +
         ", cached=" + std::to_string(cached) + ", rejected=" + std::to_string(rejected) +
         ", packed=" + std::to_string(packed);
}

void BindReport(py::module_& m) {
  py::class_<WarmupItem>(m, "WarmupItem", "One layer of a warm-up, or one kernel of a manifest.")
      .def_readonly("layer", &WarmupItem::layer, "Its name in the model; empty for a manifest's kernel.")
      .def_property_readonly(
          "kernel", [](const WarmupItem& item) { return TextOrNone(item.kernel); },
          "Signature of the kernel that will serve it, or None.")
      .def_readonly("compiled", &WarmupItem::compiled, "Kernels that were generated.")
      .def_readonly("loaded", &WarmupItem::loaded, "Kernels that were on disk.")
      .def_readonly("cached", &WarmupItem::cached, "Kernels that were in memory.")
      .def_readonly("rejected", &WarmupItem::rejected,
                    "Kernels that no emitter makes code for; portable C++ serves them.")
      .def_readonly("packed", &WarmupItem::packed, "Layers whose weights were packed.")
      .def_readonly("rejections", &WarmupItem::rejections, "list: why emitters refused, also where a later one served.")
      .def_readonly("seconds", &WarmupItem::seconds)
      .def_property_readonly(
          "error", [](const WarmupItem& item) { return TextOrNone(std::string(item.status.message())); },
          "Why it could not be prepared, or None.")
      .def("__repr__", [](const WarmupItem& item) {
        return "WarmupItem(" + item.layer + ": " +
               (item.status.ok() ? item.kernel : std::string(item.status.message())) + ")";
      });
  py::class_<WarmupReport>(m, "WarmupReport", "What a warm-up prepared: totals, and an item a layer or kernel.")
      .def_readonly("items", &WarmupReport::items)
      .def_readonly("compiled", &WarmupReport::compiled, "Kernels that were generated.")
      .def_readonly("loaded", &WarmupReport::loaded, "Kernels that were on disk.")
      .def_readonly("cached", &WarmupReport::cached, "Kernels that were in memory.")
      .def_readonly("rejected", &WarmupReport::rejected,
                    "Kernels that no emitter makes code for; portable C++ serves them.")
      .def_readonly("packed", &WarmupReport::packed, "Layers whose weights were packed.")
      .def_readonly("failed", &WarmupReport::failed, "Items that have an error.")
      .def_readonly("seconds", &WarmupReport::seconds)
      .def("__repr__", [](const WarmupReport& report) {
        return "WarmupReport(items=" + std::to_string(report.items.size()) +
               ", failed=" + std::to_string(report.failed) + ", " +
               Counts(report.compiled, report.loaded, report.cached, report.rejected, report.packed) +
               ", seconds=" + std::to_string(report.seconds) + ")";
      });
}

void BindManifest(py::module_& m) {
  py::class_<WarmupManifest>(
      m, "WarmupManifest",
      "The kernels of a run, without what followed from its machine: compiled ahead for this one or another.")
      .def(py::init<>())
      .def_static(
          "record", [] { return Unwrap(WarmupManifest::Record()); },
          "The kernels that this process has asked for so far.")
      .def_static(
          "parse", [](const std::string& text) { return Unwrap(WarmupManifest::Parse(text)); }, py::arg("text"),
          "From str(manifest). ValueError names the line.")
      .def_static(
          "load", [](const Path& path) { return Unwrap(WarmupManifest::Load(path.string())); }, py::arg("path"),
          "From a file. ValueError names the line, ClikaRTError what the system said.")
      .def(
          "save", [](const WarmupManifest& manifest, const Path& path) { Check(manifest.Save(path.string())); },
          py::arg("path"), "To a file, which appears whole or not at all.")
      .def(
          "add", [](WarmupManifest& manifest, const std::string& signature) { Check(manifest.Add(signature)); },
          py::arg("signature"), "A kernel as kernels.list() names it. One that is there already is not added again.")
      .def("_compile", &CompileManifest)
      .def_property_readonly(
          "kernels",
          [](const WarmupManifest& manifest) {
            std::vector<std::string> texts;
            for (const ir::KernelSpec& spec : manifest.kernels()) texts.push_back(spec.ToString());
            return texts;
          },
          "list: what each kernel computes.")
      .def_property_readonly(
          "math",
          [](const WarmupManifest& manifest) {
            return manifest.math == codegen::MathMode::kExact ? "exact" : "native";
          },
          "CLIKART_MATH of the run.")
      .def_readonly("emitter", &WarmupManifest::emitter, "CLIKART_EMITTER of the run.")
      .def_property_readonly(
          "target", [](const WarmupManifest& manifest) { return TextOrNone(manifest.target); },
          "The machine of the run, as compile() takes it, or None.")
      .def("__len__", [](const WarmupManifest& manifest) { return manifest.kernels().size(); })
      .def("__str__", &WarmupManifest::ToString)
      .def(
          "__eq__",
          [](const WarmupManifest& a, const py::object& b) -> py::object {
            if (!py::isinstance<WarmupManifest>(b)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
            return py::bool_(a == py::cast<const WarmupManifest&>(b));
          },
          py::is_operator())
      .def("__repr__", [](const WarmupManifest& manifest) {
        return "WarmupManifest(kernels=" + std::to_string(manifest.kernels().size()) + ")";
      });
}

}  // namespace

void BindWarmup(py::module_& m) {
  BindReport(m);
  m.def("warmup", &WarmupModule);
  BindManifest(m);
}

}  // namespace clikart::python
