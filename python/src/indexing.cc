// tensor[key]: views by ints, slices, None and an ellipsis.
#include "absl/strings/str_cat.h"
#include "errors.h"
#include "values.h"

namespace clikart::python {
namespace {

[[noreturn]] void RaiseIndexError(const std::string& message) {
  PyErr_SetString(PyExc_IndexError, message.c_str());
  throw py::error_already_set();
}

// Builds the view one index at a time.
struct View {
  const Tensor& source;
  size_t dim = 0;  // of the source, next to be consumed
  int64_t offset = 0;
  Shape shape, strides;

  void Keep() {
    shape.push_back(source.shape()[dim]);
    strides.push_back(source.strides()[dim]);
    ++dim;
  }
  void Select(py::handle index) {
    const py::ssize_t at = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) throw py::error_already_set();
    const int64_t size = source.shape()[dim];
    if (at < -size || at >= size) {
      RaiseIndexError(absl::StrCat("index ", at, " is out of bounds for dimension ", dim, " of size ", size));
    }
    offset += (at < 0 ? at + size : at) * source.strides()[dim];
    ++dim;
  }
  void Slice(py::handle slice) {
    py::ssize_t start, stop, step;
    if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) < 0) throw py::error_already_set();
    const py::ssize_t count = PySlice_AdjustIndices(source.shape()[dim], &start, &stop, step);
    if (count > 0) offset += start * source.strides()[dim];
    shape.push_back(count);
    strides.push_back(step * source.strides()[dim]);
    ++dim;
  }
};

}  // namespace

Tensor Index(const Tensor& tensor, py::handle key) {
  const py::tuple keys = PyTuple_Check(key.ptr()) ? py::reinterpret_borrow<py::tuple>(key)
                                                  : py::make_tuple(py::reinterpret_borrow<py::object>(key));
  size_t consumed = 0;
  bool ellipsis = false;
  for (const py::handle item : keys) {
    if (item.ptr() == Py_Ellipsis) {
      if (ellipsis) RaiseIndexError("an index can have one ellipsis ('...')");
      ellipsis = true;
    } else if (!item.is_none()) {
      ++consumed;
    }
  }
  const auto ndim = static_cast<size_t>(tensor.ndim());
  if (consumed > ndim) RaiseIndexError(absl::StrCat(consumed, " indices for a tensor of ", ndim, " dimensions"));
  View view{.source = tensor, .shape = {}, .strides = {}};
  for (const py::handle item : keys) {
    if (item.is_none()) {
      view.shape.push_back(1);
      view.strides.push_back(0);
    } else if (item.ptr() == Py_Ellipsis) {
      for (size_t i = consumed; i < ndim; ++i) view.Keep();
    } else if (PySlice_Check(item.ptr())) {
      view.Slice(item);
    } else if (PyIndex_Check(item.ptr()) && !PyBool_Check(item.ptr()) && !IsNumpyArray(item)) {
      view.Select(item);
    } else {
      RaiseTypeError(absl::StrCat("a tensor is indexed by ints, slices, None and '...', not by a ", TypeNameOf(item),
                                  "; use tensor.numpy() for NumPy's own indexing"));
    }
  }
  while (view.dim < ndim) view.Keep();
  const auto item_bytes = static_cast<int64_t>(ir::SizeOf(tensor.dtype()));
  return Tensor::View(tensor.storage(), std::move(view.shape), std::move(view.strides), tensor.dtype(),
                      tensor.offset() + view.offset * item_bytes);
}

}  // namespace clikart::python
