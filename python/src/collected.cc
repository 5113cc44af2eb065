// Garbage collection of modules. pybind11's traverse function visits an instance's __dict__, and on some
// versions of Python so does that of a class derived in Python; an attribute visited twice looks as if
// somebody else held it, and cycles through it are never collected.
#include "modules.h"

namespace clikart::python {
namespace {

bool g_subclasses_visit_dict = false;

int Traverse(PyObject* self, visitproc visit, void* arg) {
  if (g_subclasses_visit_dict && Py_TYPE(self)->tp_traverse != &Traverse) {
    Py_VISIT(Py_TYPE(self));
    return 0;
  }
  return py::detail::pybind11_traverse(self, visit, arg);
}

}  // namespace

py::custom_type_setup Collected() {
  return py::custom_type_setup([](PyHeapTypeObject* type) { type->ht_type.tp_traverse = &Traverse; });
}

void ProbeCollection(const py::object& module_class) {
  const py::object type = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&PyType_Type));
  const py::object probe = type("Probe", py::make_tuple(module_class), py::dict())();
  const py::object attributes = probe.attr("__dict__");
  int visits = 0;
  for (const py::handle seen : py::list(py::module_::import("gc").attr("get_referents")(probe)))
    visits += seen.is(attributes);
  g_subclasses_visit_dict = visits > 1;
}

}  // namespace clikart::python
