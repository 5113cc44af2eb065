// Memory that other libraries made, as tensors.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "errors.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

// Copies dimension `dim` and those inside it to `out`; returns where the next element goes.
std::byte* CopyRows(const Foreign& foreign, size_t dim, const std::byte* from, size_t item, std::byte* out) {
  if (dim == foreign.shape.size()) {
    std::memcpy(out, from, item);
    return out + item;
  }
  for (int64_t i = 0; i < foreign.shape[dim]; ++i)
    out = CopyRows(foreign, dim + 1, from + i * foreign.strides[dim], item, out);
  return out;
}

bool IsEmpty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

}  // namespace

bool CanShare(const Foreign& foreign) {
  const auto item = static_cast<int64_t>(ir::SizeOf(foreign.dtype));
  if (reinterpret_cast<uintptr_t>(foreign.data) % item != 0) return false;
  for (size_t i = 0; i < foreign.shape.size(); ++i) {
    if (foreign.shape[i] > 1 && foreign.strides[i] % item != 0) return false;
  }
  return true;
}

Tensor Share(const Foreign& foreign, std::shared_ptr<void> owner) {
  const auto item = static_cast<int64_t>(ir::SizeOf(foreign.dtype));
  const size_t ndim = foreign.shape.size();
  const bool empty = IsEmpty(foreign.shape);
  Shape strides(ndim);
  int64_t low = 0, high = empty ? 0 : item;  // the bytes touched, from foreign.data
  int64_t row = 1;                           // the stride of a size that has none of its own
  for (size_t i = ndim; i-- > 0;) {
    const int64_t size = foreign.shape[i];
    strides[i] = size > 1 ? foreign.strides[i] / item : row;
    const int64_t reach = empty || size <= 1 ? 0 : (size - 1) * foreign.strides[i];
    (reach < 0 ? low : high) += reach;
    row = strides[i] * std::max<int64_t>(size, 1);
  }
  auto memory = Memory::Wrap(foreign.data + low, static_cast<size_t>(high - low), std::move(owner), foreign.access);
  return Tensor::View(std::make_shared<Storage>(std::move(memory)), foreign.shape, std::move(strides), foreign.dtype,
                      -low);
}

Tensor CopyOf(const Foreign& foreign) {
  Tensor copy = Unwrap(Tensor::Empty(foreign.shape, foreign.dtype));
  if (!IsEmpty(foreign.shape)) {
    CopyRows(foreign, 0, foreign.data, ir::SizeOf(foreign.dtype), Unwrap(copy.Pin()).data);
  }
  return copy;
}

Tensor ToTensor(py::handle object) {
  if (py::isinstance<Tensor>(object)) return py::cast<const Tensor&>(object);
  if (IsNumpyArray(object)) return TensorFromNumpy(object);
  if (py::hasattr(object, "__dlpack__")) return TensorFromDLPack(object);
  if (PyCapsule_CheckExact(object.ptr())) return TensorFromCapsule(object);
  const bool numbers = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyFloat_Check(object.ptr());
  if (numbers || PyObject_CheckBuffer(object.ptr()) || py::hasattr(object, "__array__"))
    return TensorThroughNumpy(object);
  RaiseTypeError(
      absl::StrCat("a ", TypeNameOf(object),
                   " is not a tensor; taken are Tensor, NumPy arrays, buffers, DLPack objects (torch.Tensor among "
                   "them) and lists of floats"));
}

}  // namespace clikart::python
