// The extension module _core; the package clika_runtime is what users import.
#include "clikart/runtime.h"
#include "errors.h"
#include "modules.h"
#include "values.h"

namespace clikart::python {
namespace {

// The runtime has one thread pool, one kernel cache and one set of Python types a process.
constexpr char kMainOnly[] = "clika_runtime serves a process's main interpreter only, not a sub-interpreter";

// For the package: Python hands a module that the main interpreter has loaded to others without asking it.
PyObject* RefuseSubinterpreter(PyObject*, PyObject*) {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) Py_RETURN_NONE;
  PyErr_SetString(PyExc_ImportError, kMainOnly);
  return nullptr;
}

void Bind(py::module_& m) {
  ImportNumpy();
  m.doc() = "The C++ side of clika_runtime.";
  m.attr("__version__") = std::string(Version());
  static PyMethodDef refuse = {"refuse_subinterpreter", &RefuseSubinterpreter, METH_NOARGS, nullptr};
  m.add_object("refuse_subinterpreter", PyCFunction_New(&refuse, nullptr));
  BindErrors(m);
  BindDTypes(m);
  BindTensor(m);
  BindQuantScheme(m);
  BindModules(m);
  BindLayers(m);
  BindGroups(m);
  BindRuntime(m);
  BindWarmup(m);
}

}  // namespace
}  // namespace clikart::python

// PYBIND11_MODULE written out, because even its first step (pybind11's internals take the GIL by the
// state of the main interpreter) would wait forever in a sub-interpreter.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  namespace py = pybind11;
  static PyModuleDef definition;
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, clikart::python::kMainOnly);
    return nullptr;
  }
  // Here and not inside Bind, so that its absence reaches the package as NumPy's own ModuleNotFoundError.
  PyObject* numpy = PyImport_ImportModule("numpy");
  if (numpy == nullptr) return nullptr;
  Py_DECREF(numpy);
  PYBIND11_CHECK_PYTHON_VERSION
  PYBIND11_ENSURE_INTERNALS_READY
  py::module_ m = py::module_::create_extension_module("_core", nullptr, &definition);
  try {
    clikart::python::Bind(m);
    return m.ptr();
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return nullptr;  // newer versions of the macro fall through
}
