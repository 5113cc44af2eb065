// DLPack in and out, versions 0 and 1.
#include "dlpack.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "errors.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {
namespace {

constexpr char kName[] = "dltensor";
constexpr char kUsedName[] = "used_dltensor";
constexpr char kVersionedName[] = "dltensor_versioned";
constexpr char kUsedVersionedName[] = "used_dltensor_versioned";

std::optional<DType> DTypeOf(const dlpack::DataType& type) {
  if (type.lanes != 1) return std::nullopt;
  switch (type.code) {
    case dlpack::kFloat:
      if (type.bits == 32) return DType::kFloat32;
      if (type.bits == 16) return DType::kFloat16;
      return std::nullopt;
    case dlpack::kBFloat:
      return type.bits == 16 ? std::optional(DType::kBFloat16) : std::nullopt;
    case dlpack::kInt:
      if (type.bits == 32) return DType::kInt32;
      return type.bits == 8 ? std::optional(DType::kInt8) : std::nullopt;
    case dlpack::kUInt:
      return type.bits == 8 ? std::optional(DType::kUInt8) : std::nullopt;
    default:
      return std::nullopt;
  }
}

dlpack::DataType TypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * ir::SizeOf(dtype));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
      return {dlpack::kFloat, bits, 1};
    case DType::kBFloat16:
      return {dlpack::kBFloat, bits, 1};
    case DType::kInt8:
    case DType::kInt32:
      return {dlpack::kInt, bits, 1};
    case DType::kUInt8:
      return {dlpack::kUInt, bits, 1};
  }
  return {};
}

// Checked before the capsule is consumed, so that a refused one still belongs to its producer.
Foreign Describe(const dlpack::Tensor& tensor, Memory::Access access) {
  if (tensor.device.type != dlpack::kCpu) {
    RaiseBufferError(absl::StrCat("DLPack: the tensor is on a device of type ", tensor.device.type,
                                  "; only CPU memory (type 1) is served"));
  }
  if (tensor.dtype.lanes != 1) {
    RaiseBufferError(absl::StrCat("DLPack: ", tensor.dtype.lanes, " lanes an element; only 1 is served"));
  }
  const std::optional<DType> dtype = DTypeOf(tensor.dtype);
  if (!dtype) {
    RaiseTypeError(absl::StrCat("DLPack: elements of type code ", int{tensor.dtype.code}, " with ",
                                int{tensor.dtype.bits}, " bits are not served; tensors are ", ServedDTypes()));
  }
  if (tensor.ndim < 0 || tensor.ndim > 64) RaiseBufferError(absl::StrCat("DLPack: ", tensor.ndim, " dimensions"));
  Foreign foreign;
  foreign.dtype = *dtype;
  foreign.access = access;
  if (tensor.data != nullptr) foreign.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto item = static_cast<int64_t>(ir::SizeOf(*dtype));
  foreign.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  foreign.strides.resize(tensor.ndim);
  int64_t row = item, count = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] < 0) RaiseBufferError(absl::StrCat("DLPack: dimension ", i, " has size ", tensor.shape[i]));
    foreign.strides[i] = tensor.strides != nullptr ? tensor.strides[i] * item : row;
    row *= tensor.shape[i];
    count *= tensor.shape[i];
  }
  if (tensor.data == nullptr && count != 0) RaiseBufferError("DLPack: no data");
  return foreign;
}

Tensor Take(const Foreign& foreign, std::shared_ptr<void> owner) {
  return CanShare(foreign) ? Share(foreign, std::move(owner)) : CopyOf(foreign);
}

template <typename M>
std::shared_ptr<void> Consume(PyObject* capsule, M* managed, const char* used_name) {
  if (PyCapsule_SetName(capsule, used_name) != 0) throw py::error_already_set();
  return Owner(
      [](void* p) {
        auto* done = static_cast<M*>(p);
        if (done->deleter != nullptr) done->deleter(done);
      },
      managed);
}

// What an exported capsule points to.
template <typename M>
struct Export {
  M managed{};
  std::shared_ptr<Memory> memory;
  Shape shape, strides;
};

template <typename M>
py::object MakeCapsule(const Tensor& tensor, Tensor::Pinned pinned, const char* name, PyCapsule_Destructor destructor) {
  auto* made = new Export<M>;
  made->shape = tensor.shape();
  made->strides = tensor.strides();
  made->memory = std::move(pinned.memory);
  made->managed.tensor = {pinned.data,
                          {dlpack::kCpu, 0},
                          static_cast<int32_t>(tensor.ndim()),
                          TypeOf(tensor.dtype()),
                          made->shape.data(),
                          made->strides.data(),
                          0};
  made->managed.context = made;
  made->managed.deleter = [](M* managed) { delete static_cast<Export<M>*>(managed->context); };
  PyObject* capsule = PyCapsule_New(&made->managed, name, destructor);
  if (capsule == nullptr) {
    delete made;
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

// A capsule that nobody consumed still has its first name, and then its memory is ours to let go.
template <typename M>
void Unconsumed(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

}  // namespace

Tensor TensorFromCapsule(py::handle capsule) {
  PyObject* object = capsule.ptr();
  if (PyCapsule_IsValid(object, kVersionedName)) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(object, kVersionedName));
    if (managed->major != 1) {
      RaiseBufferError(
          absl::StrCat("DLPack: the capsule has version ", managed->major, ".", managed->minor, "; 1.x is served"));
    }
    const auto access =
        (managed->flags & dlpack::kReadOnly) != 0 ? Memory::Access::kReadOnly : Memory::Access::kReadWrite;
    const Foreign foreign = Describe(managed->tensor, access);
    return Take(foreign, Consume(object, managed, kUsedVersionedName));
  }
  if (PyCapsule_IsValid(object, kName)) {
    auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(object, kName));
    const Foreign foreign = Describe(managed->tensor, Memory::Access::kReadWrite);
    return Take(foreign, Consume(object, managed, kUsedName));
  }
  const char* name = PyCapsule_GetName(object);
  RaiseBufferError(absl::StrCat("not a DLPack capsule that can be consumed: its name is ",
                                name != nullptr ? name : "null", " (a capsule serves once)"));
}

Tensor TensorFromDLPack(py::handle producer) {
  if (py::hasattr(producer, "__dlpack_device__")) {
    const py::tuple device = producer.attr("__dlpack_device__")();
    const auto type = py::cast<int>(py::int_(device[0]));
    if (type != dlpack::kCpu) {
      RaiseBufferError(absl::StrCat("DLPack: ", TypeNameOf(producer), " is on a device of type ", type,
                                    "; only CPU memory (type 1) is served"));
    }
  }
  py::object capsule;
  try {
    capsule = producer.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = producer.attr("__dlpack__")();  // a producer from before version 1
  }
  if (!PyCapsule_CheckExact(capsule.ptr())) {
    RaiseTypeError(absl::StrCat("DLPack: ", TypeNameOf(producer), ".__dlpack__ returned a ", TypeNameOf(capsule),
                                ", not a capsule"));
  }
  return TensorFromCapsule(capsule);
}

py::object DLPackFromTensor(const Tensor& tensor, py::handle stream, py::handle max_version, py::handle device,
                            py::handle copy) {
  if (!stream.is_none()) RaiseBufferError("DLPack: a CPU tensor has no stream");
  if (!device.is_none() &&
      !py::tuple(py::reinterpret_borrow<py::object>(device)).equal(py::make_tuple(int{dlpack::kCpu}, 0))) {
    RaiseBufferError(absl::StrCat("DLPack: the tensor is on the CPU (1, 0), not on ", std::string(py::str(device))));
  }
  const bool copies = !copy.is_none() && py::cast<bool>(copy);
  const Tensor given = copies ? Unwrap(tensor.Clone()) : tensor;
  Tensor::Pinned pinned = Unwrap(given.Pin());
  const bool read_only = pinned.memory->access() == Memory::Access::kReadOnly;
  const bool versioned =
      !max_version.is_none() && py::cast<int>(py::tuple(py::reinterpret_borrow<py::object>(max_version))[0]) >= 1;
  if (!versioned) {
    if (read_only) RaiseBufferError("DLPack: the memory is read-only, which only capsules of version 1 can say");
    return MakeCapsule<dlpack::Managed>(given, std::move(pinned), kName,
                                        [](PyObject* capsule) { Unconsumed<dlpack::Managed>(capsule, kName); });
  }
  py::object capsule = MakeCapsule<dlpack::ManagedVersioned>(
      given, std::move(pinned), kVersionedName,
      [](PyObject* object) { Unconsumed<dlpack::ManagedVersioned>(object, kVersionedName); });
  auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
  managed->major = 1;
  managed->minor = 0;
  managed->flags = (read_only ? dlpack::kReadOnly : 0) | (copies ? dlpack::kCopied : 0);
  return capsule;
}

}  // namespace clikart::python
