// The extension module _core; the package clika_runtime is what users import.
#include "clikart/runtime.h"
#include "errors.h"
#include "modules.h"
#include "values.h"

namespace clikart::python {
namespace {

// The runtime has one thread pool, one kernel cache and one set of Python types a process.
void RefuseSubinterpreter() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return;
  PyErr_SetString(PyExc_ImportError, "clika_runtime serves a process's main interpreter only, not a sub-interpreter");
  throw py::error_already_set();
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  RefuseSubinterpreter();
  ImportNumpy();
  m.doc() = "The C++ side of clika_runtime.";
  m.attr("__version__") = std::string(Version());
  m.def("refuse_subinterpreter", &RefuseSubinterpreter);
  m.def("check_environment", [] { Check(CheckEnvironment()); });
  BindErrors(m);
  BindDTypes(m);
  BindTensor(m);
  BindQuantScheme(m);
  BindModules(m);
  BindLayers(m);
  BindGroups(m);
  BindRuntime(m);
}

}  // namespace clikart::python
