#include <array>

#include "absl/strings/str_cat.h"
#include "errors.h"
#include "values.h"

namespace clikart::python {
namespace {

constexpr std::array kAll = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                             DType::kInt8,    DType::kUInt8,   DType::kInt32};

// What Python sees: an opaque object, one a dtype, compared by identity.
struct DTypeHandle {
  DType dtype;
};

std::array<PyObject*, kAll.size()> g_objects{};  // by enum value, alive as long as the process

std::string FullName(const DTypeHandle& handle) { return std::string(ir::Name(handle.dtype)); }

}  // namespace

const std::string& ServedDTypes() {
  static const std::string& names = *new std::string("float32, float16, bfloat16, int8, uint8 and int32");
  return names;
}

py::object DTypeObject(DType dtype) {
  return py::reinterpret_borrow<py::object>(g_objects[static_cast<size_t>(dtype)]);
}

DType ToDType(py::handle object) {
  if (py::isinstance<DTypeHandle>(object)) return py::cast<const DTypeHandle&>(object).dtype;
  std::string text;
  if (py::isinstance<py::str>(object)) {
    text = py::cast<std::string>(object);
  } else if (py::hasattr(object, "name") && py::isinstance<py::str>(object.attr("name"))) {
    text = py::cast<std::string>(object.attr("name"));  // numpy.dtype
  } else if (PyType_Check(object.ptr())) {
    text = py::cast<std::string>(object.attr("__name__"));  // numpy.float32, ml_dtypes.bfloat16
  }
  for (const DType dtype : kAll) {
    if (text == ir::Name(dtype)) return dtype;
  }
  RaiseTypeError(absl::StrCat(std::string(py::repr(object)), " is not a dtype; there are ", ServedDTypes()));
}

void BindDTypes(py::module_& m) {
  py::class_<DTypeHandle> type(m, "dtype", "The element type of a tensor: clika_runtime.float32 and its like.");
  type.def_property_readonly("name", &FullName)
      .def_property_readonly(
          "itemsize", [](const DTypeHandle& h) { return ir::SizeOf(h.dtype); }, "Bytes of an element.")
      .def("__repr__", [](const DTypeHandle& h) { return "clika_runtime." + FullName(h); })
      .def("__reduce__", &FullName);  // a global of that name
  type.attr("__module__") = "clika_runtime";
  for (const DType dtype : kAll) {
    py::object object = py::cast(DTypeHandle{dtype});
    m.attr(std::string(ir::Name(dtype)).c_str()) = object;
    g_objects[static_cast<size_t>(dtype)] = object.release().ptr();
  }
  m.def("dtype_of", [](DType dtype) { return dtype; }, "The dtype that a name, or NumPy's dtype, stands for.");
}

}  // namespace clikart::python
