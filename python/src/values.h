// Tensors and dtypes between Python and C++.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "clikart/tensor.h"

namespace clikart::python {

namespace py = pybind11;

// The dtype object of Python ("clika_runtime.float32"); one object a dtype.
py::object DTypeObject(DType dtype);
// From a dtype object, a name, or what NumPy and ml_dtypes use for one. TypeError otherwise.
DType ToDType(py::handle object);
// "float32, float16, bfloat16, int8, uint8 and int32": for messages.
const std::string& ServedDTypes();

// A view of foreign memory, as every exchange protocol describes it.
struct Foreign {
  std::byte* data = nullptr;
  Shape shape, strides;  // strides in bytes
  DType dtype = DType::kFloat32;
  Memory::Access access = Memory::Access::kReadWrite;
};
// True when the elements can be used in place: aligned, and strides a multiple of the element.
bool CanShare(const Foreign& foreign);
// The view itself; `owner` keeps the memory alive.
Tensor Share(const Foreign& foreign, std::shared_ptr<void> owner);
// A copy, for what cannot be shared.
Tensor CopyOf(const Foreign& foreign);

// What Tensor.from_data takes. TypeError, BufferError or ValueError say what was given.
Tensor ToTensor(py::handle object);

// numpy.cc
void ImportNumpy();
bool IsNumpyArray(py::handle object);
Tensor TensorFromNumpy(py::handle array);
// Anything NumPy turns into an array of its own accord, number lists among them.
Tensor TensorThroughNumpy(py::handle object);
py::object NumpyFromTensor(const Tensor& tensor);

// dlpack.cc
Tensor TensorFromCapsule(py::handle capsule);
Tensor TensorFromDLPack(py::handle producer);
py::object DLPackFromTensor(const Tensor& tensor, py::handle stream, py::handle max_version, py::handle device,
                            py::handle copy);

// indexing.cc: tensor[key] with ints, slices, None and an ellipsis.
Tensor Index(const Tensor& tensor, py::handle key);

py::tuple ToTuple(const Shape& shape);
// From an int or a sequence of ints.
Shape ToShape(py::handle object);

void BindDTypes(py::module_& m);
void BindTensor(py::module_& m);

}  // namespace clikart::python

namespace pybind11::detail {

// A tensor argument takes all that from_data takes; a tensor result is moved out.
struct TensorArgument {
  clikart::Tensor tensor;
};

template <>
struct type_caster<TensorArgument> {
  PYBIND11_TYPE_CASTER(TensorArgument, const_name("Tensor"));
  bool load(handle source, bool) {
    value.tensor = clikart::python::ToTensor(source);
    return true;
  }
};

template <>
struct type_caster<clikart::DType> {
  PYBIND11_TYPE_CASTER(clikart::DType, const_name("dtype"));
  bool load(handle source, bool) {
    value = clikart::python::ToDType(source);
    return true;
  }
  static handle cast(clikart::DType dtype, return_value_policy, handle) {
    return clikart::python::DTypeObject(dtype).release();
  }
};

}  // namespace pybind11::detail

namespace clikart::python {
using TensorArgument = pybind11::detail::TensorArgument;
}  // namespace clikart::python
