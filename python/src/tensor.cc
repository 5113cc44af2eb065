// The class Tensor and the functions that make several of one, or one of several.
#include <pybind11/stl.h>

#include <vector>

#include "errors.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

// numpy's __array__ protocol: copy None copies where it must, True always, False never.
py::object ToArray(const Tensor& tensor, const py::object& dtype, const py::object& copy) {
  py::object array = NumpyFromTensor(tensor);
  if (!dtype.is_none()) {
    const py::object wanted = py::module_::import("numpy").attr("dtype")(dtype);
    if (!wanted.equal(array.attr("dtype"))) {
      if (!copy.is_none() && !py::cast<bool>(copy)) {
        throw py::value_error("a tensor of dtype " + std::string(ir::Name(tensor.dtype())) + " is " +
                              std::string(py::str(wanted)) + " only as a copy");
      }
      return array.attr("astype")(wanted);
    }
  }
  return !copy.is_none() && py::cast<bool>(copy) ? array.attr("copy")() : array;
}

std::string Repr(const Tensor& tensor) {
  if (!tensor.has_storage()) return "Tensor(" + tensor.ToString() + ", storage-free)";
  const py::object text = py::module_::import("numpy").attr("array2string")(
      NumpyFromTensor(tensor), py::arg("separator") = ", ", py::arg("prefix") = "Tensor(", py::arg("threshold") = 100);
  return "Tensor(" + py::cast<std::string>(text) + ", " + tensor.ToString() + ")";
}

std::vector<Tensor> ToTensors(const py::iterable& objects) {
  std::vector<Tensor> tensors;
  for (const py::handle object : objects) tensors.push_back(ToTensor(object));
  return tensors;
}

}  // namespace

py::tuple ToTuple(const Shape& shape) {
  py::tuple tuple(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) tuple[i] = shape[i];
  return tuple;
}

namespace {

int64_t ToSize(py::handle object) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const int64_t size = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) throw py::value_error(py::cast<std::string>(py::str(number)) + " does not fit into 64 bits");
  return size;
}

}  // namespace

Shape ToShape(py::handle object) {
  if (py::isinstance<py::int_>(object)) return {ToSize(object)};
  Shape shape;
  for (const py::handle item : py::reinterpret_borrow<py::object>(object)) shape.push_back(ToSize(item));
  return shape;
}

void BindTensor(py::module_& m) {
  py::class_<Tensor>(m, "Tensor", "An n-d array: a handle on memory that views, NumPy and DLPack share.")
      .def_static("from_data", &ToTensor, py::arg("obj"),
                  "A tensor on the memory of a NumPy array, a buffer or a DLPack object, which it keeps alive;\n"
                  "a copy only where the elements are misaligned. Lists of floats become float32.\n"
                  "TypeError: a dtype that is not served, foreign byte order, masked elements.")
      .def_property_readonly(
          "shape", [](const Tensor& t) { return ToTuple(t.shape()); }, "Sizes, as a tuple.")
      .def_property_readonly(
          "strides", [](const Tensor& t) { return ToTuple(t.strides()); }, "In elements.")
      .def_property_readonly("dtype", [](const Tensor& t) { return t.dtype(); })
      .def_property_readonly("ndim", &Tensor::ndim)
      .def_property_readonly("nbytes", &Tensor::nbytes)
      .def_property_readonly(
          "has_storage", &Tensor::has_storage,
          "False once a pack has taken the memory over: the metadata still answer, the data raise ClikaRTError.")
      .def("numpy", &NumpyFromTensor, "A NumPy array on the same memory.")
      .def(
          "contiguous", [](const Tensor& t) { return Unwrap(t.Contiguous()); },
          "Itself in row-major order, else a copy.")
      .def(
          "item", [](const Tensor& t) { return NumpyFromTensor(t).attr("item")(); },
          "The one element, as a Python number.")
      .def(
          "tolist", [](const Tensor& t) { return NumpyFromTensor(t).attr("tolist")(); },
          "Nested lists of Python numbers.")
      .def("__array__", &ToArray, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack__", &DLPackFromTensor, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const Tensor&) { return py::make_tuple(1, 0); })
      .def("__getitem__", &Index, py::arg("key"))
      .def("__len__",
           [](const Tensor& t) {
             if (t.ndim() == 0) RaiseTypeError("a tensor of no dimension has no length");
             return t.shape()[0];
           })
      .def("__repr__", &Repr)
      .def("__copy__", [](const Tensor& t) { return t; })
      .def(
          "__deepcopy__", [](const Tensor& t, const py::object&) { return Unwrap(t.Clone()); }, py::arg("memo"))
      .def("__reduce__", [](const Tensor& t) {
        return py::make_tuple(py::module_::import("clika_runtime._copying").attr("tensor_from_array"),
                              py::make_tuple(NumpyFromTensor(Unwrap(t.Contiguous()))));
      });

  m.def(
      "split_with_sizes",
      [](const TensorArgument& x, const py::object& sizes, int64_t dim) {
        return Unwrap(SplitWithSizes(x.tensor, ToShape(sizes), dim));
      },
      py::arg("x"), py::arg("sizes"), py::arg("dim") = -1,
      "Views of `x` along `dim`, one a size, in order. ValueError when the sizes do not add up.");
  m.def(
      "concat",
      [](const py::iterable& objects, int64_t dim) {
        const std::vector<Tensor> tensors = ToTensors(objects);
        absl::StatusOr<Tensor> joined;
        {
          ReleasedGil released;
          joined = Concat(tensors, dim);
        }
        return Unwrap(std::move(joined));
      },
      py::arg("tensors"), py::arg("dim") = -1,
      "A new tensor: `tensors` one after the other along `dim`. ValueError when shapes or dtypes differ.");
}

}  // namespace clikart::python
