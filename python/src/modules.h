// Modules between Python and C++: always as the most derived class that Python knows, and always as
// the one Python object that stands for them.
#pragma once

#include <pybind11/pybind11.h>

#include <typeinfo>

#include "clikart/nn.h"

namespace clikart::python {

namespace py = pybind11;

// The classes behind the interfaces are the runtime's own; Python sees the interface.
template <typename T>
const void* MostDerived(const Module* module, const std::type_info*& type, const T*) {
  const auto* as = dynamic_cast<const T*>(module);
  if (as != nullptr) type = &typeid(T);
  return as;
}

template <typename... Classes>
const void* MostDerivedOf(const Module* module, const std::type_info*& type) {
  const void* found = nullptr;
  ((found = MostDerived(module, type, static_cast<const Classes*>(nullptr))) || ...);
  return found;
}

// The module behind `self`; AttributeError before Module.__init__ has run.
Module& ModuleOf(py::handle self);

// For each class_ of a module: lets the garbage collector see each attribute exactly once.
py::custom_type_setup Collected();
// Finds out, on the bound class Module, what this Python does.
void ProbeCollection(const py::object& module_class);

void BindModules(py::module_& m);
void BindLayers(py::module_& m);
void BindGroups(py::module_& m);
void BindQuantScheme(py::module_& m);
void BindRuntime(py::module_& m);
void BindWarmup(py::module_& m);

}  // namespace clikart::python

namespace pybind11 {

template <typename T>
struct polymorphic_type_hook<T, std::enable_if_t<std::is_base_of_v<clikart::Module, T>>> {
  static const void* get(const T* source, const std::type_info*& type) {
    using namespace clikart;
    if (source == nullptr) return nullptr;
    return python::MostDerivedOf<LinearGroup, ConvGroup, Linear, QLinearWoQ, QLinear, Conv, Sequential, ModuleList,
                                 Module>(source, type);
  }
};

}  // namespace pybind11
