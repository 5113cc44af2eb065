// NumPy arrays in and out, by NumPy's C API (the only file that includes it).
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "errors.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

// NumPy's number for ml_dtypes.bfloat16, which NumPy hands out when ml_dtypes is imported.
int g_bfloat16_num = -1;

bool IsBFloat16(PyArray_Descr* descr) {
  if (descr->type_num < NPY_USERDEF) return false;
  if (descr->type_num == g_bfloat16_num) return true;
  if (py::str(py::handle(reinterpret_cast<PyObject*>(descr)).attr("name")).cast<std::string>() != "bfloat16")
    return false;
  g_bfloat16_num = descr->type_num;
  return true;
}

std::optional<DType> DTypeOf(PyArray_Descr* descr) {
  if (descr->byteorder == '>') return std::nullopt;
  switch (descr->type_num) {
    case NPY_FLOAT32:
      return DType::kFloat32;
    case NPY_FLOAT16:
      return DType::kFloat16;
    case NPY_INT8:
      return DType::kInt8;
    case NPY_UINT8:
      return DType::kUInt8;
    case NPY_INT32:
      return DType::kInt32;
    default:
      return IsBFloat16(descr) ? std::optional(DType::kBFloat16) : std::nullopt;
  }
}

// Takes over the reference.
py::object Steal(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

PyArray_Descr* NewDescr(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return PyArray_DescrFromType(NPY_FLOAT32);
    case DType::kFloat16:
      return PyArray_DescrFromType(NPY_FLOAT16);
    case DType::kInt8:
      return PyArray_DescrFromType(NPY_INT8);
    case DType::kUInt8:
      return PyArray_DescrFromType(NPY_UINT8);
    case DType::kInt32:
      return PyArray_DescrFromType(NPY_INT32);
    case DType::kBFloat16: {
      PyArray_Descr* descr = nullptr;
      const py::object type = py::module_::import("ml_dtypes").attr("bfloat16");
      if (!PyArray_DescrConverter(type.ptr(), &descr)) throw py::error_already_set();
      g_bfloat16_num = descr->type_num;
      return descr;
    }
  }
  return nullptr;
}

[[noreturn]] void RefuseDType(PyArrayObject* array) {
  const auto descr = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyArray_DESCR(array)));
  std::string name = py::str(descr);  // ">f4" where the byte order is foreign, fields where there are some
  if (PyArray_DESCR(array)->byteorder == '>') absl::StrAppend(&name, " (big-endian)");
  RaiseTypeError(absl::StrCat("an array of dtype ", name, " is not served; tensors are ", ServedDTypes(),
                              ", in native byte order"));
}

void RefuseMask(py::handle array) {
  const py::dict modules = py::module_::import("sys").attr("modules");
  if (!modules.contains("numpy.ma")) return;
  const py::object masked = py::handle(modules["numpy.ma"]).attr("MaskedArray");
  if (!py::isinstance(array, masked)) return;
  if (PyObject_IsTrue(py::object(py::module_::import("numpy").attr("any")(array.attr("mask"))).ptr()) == 1) {
    RaiseTypeError("a masked array with masked elements is not served: fill it first (array.filled(...))");
  }
}

}  // namespace

void ImportNumpy() {
  if (_import_array() < 0) throw py::error_already_set();
}

bool IsNumpyArray(py::handle object) { return PyArray_Check(object.ptr()); }

Tensor TensorFromNumpy(py::handle object) {
  auto* array = reinterpret_cast<PyArrayObject*>(object.ptr());
  if (!PyArray_CheckExact(object.ptr())) RefuseMask(object);
  const std::optional<DType> dtype = DTypeOf(PyArray_DESCR(array));
  if (!dtype) RefuseDType(array);
  Foreign foreign;
  foreign.data = static_cast<std::byte*>(PyArray_DATA(array));
  foreign.shape.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  foreign.strides.assign(PyArray_STRIDES(array), PyArray_STRIDES(array) + PyArray_NDIM(array));
  foreign.dtype = *dtype;
  foreign.access = PyArray_ISWRITEABLE(array) ? Memory::Access::kReadWrite : Memory::Access::kReadOnly;
  if (!CanShare(foreign)) return CopyOf(foreign);
  return Share(foreign, Owner(py::reinterpret_borrow<py::object>(object)));
}

Tensor TensorThroughNumpy(py::handle object) {
  const bool numbers = PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyFloat_Check(object.ptr());
  // Bytes are numbers here; NumPy alone would make a string of them.
  const bool plain_buffer = PyObject_CheckBuffer(object.ptr()) && !py::hasattr(object, "__array__");
  const py::object source =
      plain_buffer ? Steal(PyMemoryView_FromObject(object.ptr())) : py::reinterpret_borrow<py::object>(object);
  py::object array = Steal(PyArray_FROM_O(source.ptr()));
  // Python's own floats are doubles only for want of another type; here, as in torch, they mean float32.
  if (numbers && PyArray_TYPE(reinterpret_cast<PyArrayObject*>(array.ptr())) == NPY_FLOAT64) {
    array = Steal(PyArray_Cast(reinterpret_cast<PyArrayObject*>(array.ptr()), NPY_FLOAT32));
  }
  return TensorFromNumpy(array);
}

py::object NumpyFromTensor(const Tensor& tensor) {
  Tensor::Pinned pinned = Unwrap(tensor.Pin());
  const auto item = static_cast<npy_intp>(ir::SizeOf(tensor.dtype()));
  npy_intp dims[NPY_MAXDIMS], strides[NPY_MAXDIMS];
  const int ndim = static_cast<int>(tensor.ndim());
  for (int i = 0; i < ndim; ++i) {
    dims[i] = tensor.shape()[i];
    strides[i] = tensor.strides()[i] * item;
  }
  const int flags = pinned.memory->access() == Memory::Access::kReadWrite ? NPY_ARRAY_WRITEABLE : 0;
  using Held = std::shared_ptr<Memory>;
  py::capsule base(new Held(pinned.memory), [](void* held) { delete static_cast<Held*>(held); });
  // NumPy would allocate for a null address, which an empty tensor may have.
  static std::byte nothing[16];
  void* data = pinned.data != nullptr ? pinned.data : nothing;
  py::object array =
      Steal(PyArray_NewFromDescr(&PyArray_Type, NewDescr(tensor.dtype()), ndim, dims, strides, data, flags, nullptr));
  auto* as_array = reinterpret_cast<PyArrayObject*>(array.ptr());
  PyArray_UpdateFlags(as_array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  if (PyArray_SetBaseObject(as_array, base.release().ptr()) < 0) throw py::error_already_set();
  return array;
}

}  // namespace clikart::python
