// Module and the containers. C++ owns the tree; the parent's __dict__ keeps the Python object of each
// child, with the attributes that only Python knows.
#include "clikart/nn.h"

#include <pybind11/stl.h>

#include "absl/strings/str_cat.h"
#include "errors.h"
#include "modules.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {

Module& ModuleOf(py::handle self) {
  auto* instance = reinterpret_cast<py::detail::instance*>(self.ptr());
  if (!instance->get_value_and_holder().holder_constructed()) {
    PyErr_Format(PyExc_AttributeError, "%s.__init__ has to call super().__init__() before it sets attributes",
                 Py_TYPE(self.ptr())->tp_name);
    throw py::error_already_set();
  }
  return py::cast<Module&>(self);
}

namespace {

py::object DictOf(py::handle self) { return self.attr("__dict__"); }

void SetAttribute(const py::object& self, const py::str& name, const py::object& value) {
  Module& module = ModuleOf(self);
  const auto key = py::cast<std::string>(name);
  if (py::isinstance<Module>(value)) {
    ModuleOf(value);
    Check(module.RegisterChild(key, py::cast<std::shared_ptr<Module>>(value)));
    DictOf(self)[name] = value;
    return;
  }
  for (const auto& [child, unused] : module.children()) {
    if (child != key) continue;
    if (!value.is_none())
      RaiseTypeError(absl::StrCat("'", key, "' is a child module; it can become another module or None, not a ",
                                  TypeNameOf(value)));
    module.RemoveChild(key);
    break;
  }
  if (PyObject_GenericSetAttr(self.ptr(), name.ptr(), value.ptr()) != 0) throw py::error_already_set();
}

void DeleteAttribute(const py::object& self, const py::str& name) {
  ModuleOf(self).RemoveChild(py::cast<std::string>(name));
  if (PyObject_GenericSetAttr(self.ptr(), name.ptr(), nullptr) != 0) throw py::error_already_set();
}

py::object Call(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  return self.attr("forward")(*args, **kwargs);
}

// name -> tensor, with `prefix` before each name as it is.
py::dict StateDictOf(Module& module, const std::string& prefix) {
  absl::StatusOr<StateDict> state;
  {
    ReleasedGil released;
    state = module.GetStateDict();
  }
  py::dict out;
  for (auto& [name, tensor] : Unwrap(std::move(state))) out[py::str(prefix + name)] = py::cast(std::move(tensor));
  return out;
}

}  // namespace

namespace {

// A parameter of one value may be a plain number: an int is one of int32 (zero points), a float one of float32.
Tensor ToParameter(const py::handle& value) {
  if (!PyLong_CheckExact(value.ptr())) return ToTensor(value);
  const long long number = PyLong_AsLongLong(value.ptr());
  if (PyErr_Occurred() != nullptr || number != static_cast<int32_t>(number)) {
    PyErr_Clear();
    RaiseTypeError("the integer does not fit in int32");
  }
  const auto narrow = static_cast<int32_t>(number);
  return Unwrap(Tensor::FromVector<int32_t>({}, DType::kInt32, std::span(&narrow, 1)));
}

}  // namespace

StateDict ToStateDict(const py::object& mapping) {
  if (!py::hasattr(mapping, "items"))
    RaiseTypeError("a state dict maps names to tensors; got a " + TypeNameOf(mapping));
  StateDict state;
  const py::object items = mapping.attr("items")();
  for (const py::handle item : items) {
    const py::tuple pair(py::reinterpret_borrow<py::object>(item));
    if (!py::isinstance<py::str>(pair[0]))
      RaiseTypeError("the names of a state dict are strings; got a " + TypeNameOf(pair[0]));
    auto name = py::cast<std::string>(pair[0]);
    try {
      state.emplace_back(name, ToParameter(pair[1]));
    } catch (py::error_already_set& error) {
      // A value that cannot be loaded is the load's error, like a wrong shape, and names its entry.
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_BufferError)) throw;
      RaiseRuntime(name + ": " + py::cast<std::string>(py::str(error.value())));
    }
  }
  return state;
}

void BindModules(py::module_& m) {
  py::class_<LoadReport>(m, "LoadReport", "What a load did not find, and what it did not use.")
      .def_readonly("missing_keys", &LoadReport::missing)
      .def_readonly("unexpected_keys", &LoadReport::unexpected)
      // Unpacks like PyTorch's pair: missing, unexpected = module.load_state_dict(...)
      .def("__iter__",
           [](const LoadReport& report) { return py::iter(py::make_tuple(report.missing, report.unexpected)); })
      .def("__repr__", [](const LoadReport& report) {
        if (report.missing.empty() && report.unexpected.empty()) return std::string("<All keys matched successfully>");
        return absl::StrCat("LoadReport(missing_keys=", std::string(py::repr(py::cast(report.missing))),
                            ", unexpected_keys=", std::string(py::repr(py::cast(report.unexpected))), ")");
      });

  py::class_<Module, std::shared_ptr<Module>>(m, "Module", py::dynamic_attr(), Collected())
      .def(py::init<>())
      .def("__setattr__", &SetAttribute)
      .def("__delattr__", &DeleteAttribute)
      .def("__call__", &Call)
      .def("forward",
           [](const py::object& self, const py::args&, const py::kwargs&) {
             PyErr_Format(PyExc_NotImplementedError, "%s defines no forward", Py_TYPE(self.ptr())->tp_name);
             throw py::error_already_set();
           })
      .def("_named_children", [](Module& module) { return module.children(); })
      .def("_named_modules", [](Module& module, const std::string& prefix) { return module.NamedModules(prefix); })
      .def("_to_string", &Module::ToString)
      .def_property_readonly("resident_bytes", &Module::ResidentBytes,
                             "Bytes of the memory that holds the parameters of every layer below: tensors, packs, and "
                             "the packs of groups they are fused into, each counted once.")
      .def("state_dict", &StateDictOf, py::arg("prefix") = "",
           "Every parameter below by its checkpoint name, as a dict of tensors. `prefix` goes before each name as it "
           "is.")
      .def(
          "load_state_dict",
          [](Module& module, const py::object& mapping, bool strict, bool assign) {
            const StateDict state = ToStateDict(mapping);
            absl::StatusOr<LoadReport> report;
            {
              ReleasedGil released;
              report = module.LoadStateDict(state, {.strict = strict, .assign = assign});
            }
            return Unwrap(std::move(report));
          },
          py::arg("mapping"), py::arg("strict") = true, py::arg("assign") = false,
          "Loads a mapping of names to tensors, all or nothing, and reports missing_keys and unexpected_keys.\n"
          "`strict`: those are an error. `assign`: the given memory is kept instead of copied and needs the exact "
          "dtype.\n"
          "ClikaRTError, with nothing changed: a wrong name, shape or dtype.");

  py::class_<Sequential, Module, std::shared_ptr<Sequential>>(m, "Sequential", Collected()).def(py::init([] {
    return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{});
  }));
  py::class_<ModuleList, Module, std::shared_ptr<ModuleList>>(m, "ModuleList", Collected()).def(py::init([] {
    return std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{});
  }));
  ProbeCollection(m.attr("Module"));
}

}  // namespace clikart::python
