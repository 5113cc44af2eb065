#include "clikart/tensor.h"

#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "output.h"
#include "tensor_copy.h"
#include "text.h"

namespace clikart {
namespace {

// Bytes of a contiguous tensor, or an error for a negative size or one no address space holds.
absl::StatusOr<int64_t> CheckedBytes(std::span<const int64_t> shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(ir::SizeOf(dtype));
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor of shape ", ShapeString(shape), " has a negative size"));
    }
    empty |= size == 0;
  }
  if (empty) return 0;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of shape ", ShapeString(shape), " is larger than the address space"));
    }
  }
  return bytes;
}

Shape RowMajorStrides(std::span<const int64_t> shape) {
  Shape strides(shape.size(), 1);
  uint64_t step = 1;  // may wrap where another size is 0, and then nobody steps
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(shape[i] > 0 ? shape[i] : 1);
  }
  return strides;
}

absl::StatusOr<size_t> ResolveDim(int64_t dim, int64_t ndim) {
  const int64_t resolved = dim < 0 ? dim + ndim : dim;
  if (resolved < 0 || resolved >= ndim) {
    return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of a tensor with ", ndim, " dimensions"));
  }
  return static_cast<size_t>(resolved);
}

template <typename T>
constexpr std::string_view ElementName() {
  if (std::is_same_v<T, float>) return "float";
  if (std::is_same_v<T, uint16_t>) return "16-bit";
  if (std::is_same_v<T, int8_t>) return "int8";
  if (std::is_same_v<T, uint8_t>) return "uint8";
  return "int32";
}

template <typename T>
bool Takes(DType dtype) {
  if (std::is_same_v<T, float>) return ir::IsFloat(dtype);
  if (std::is_same_v<T, uint16_t>) return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (std::is_same_v<T, int8_t>) return dtype == DType::kInt8;
  if (std::is_same_v<T, uint8_t>) return dtype == DType::kUInt8;
  return dtype == DType::kInt32;
}

using Allocator = absl::StatusOr<std::shared_ptr<Memory>>(size_t bytes);

absl::StatusOr<Tensor> EmptyFrom(Allocator& allocate, std::span<const int64_t> shape, DType dtype) {
  const absl::StatusOr<int64_t> bytes = CheckedBytes(shape, dtype);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::shared_ptr<Memory>> memory = allocate(static_cast<size_t>(*bytes));
  if (!memory.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a tensor ", Text(ir::Name(dtype)), ShapeString(shape), ": ", memory.status().message()));
  }
  return Tensor::View(std::make_shared<Storage>(*std::move(memory)), Shape(shape.begin(), shape.end()),
                      RowMajorStrides(shape), dtype, 0);
}

}  // namespace

absl::StatusOr<Tensor> Tensor::Empty(std::span<const int64_t> shape, DType dtype) {
  return EmptyFrom(Memory::Allocate, shape, dtype);
}

absl::StatusOr<Tensor> EmptyOutput(std::span<const int64_t> shape, DType dtype) {
  return EmptyFrom(OutputMemory, shape, dtype);
}

absl::StatusOr<Tensor> Tensor::Zeros(std::span<const int64_t> shape, DType dtype) {
  absl::StatusOr<Tensor> tensor = Empty(shape, dtype);
  if (tensor.ok()) std::memset(tensor->Pin()->data, 0, static_cast<size_t>(tensor->nbytes()));
  return tensor;
}

template <typename T>
absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t> shape, DType dtype, std::span<const T> values) {
  if (!Takes<T>(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Text(ElementName<T>()), " values do not make a ", Text(ir::Name(dtype)), " tensor"));
  }
  absl::StatusOr<Tensor> tensor = Empty(shape, dtype);
  if (!tensor.ok()) return tensor;
  if (tensor->numel() != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeString(shape), " holds ", tensor->numel(),
                                                   " values, but ", values.size(), " were given"));
  }
  const DType source = std::is_same_v<T, float> ? DType::kFloat32 : dtype;
  ConvertFloats(reinterpret_cast<const std::byte*>(values.data()), source, tensor->Pin()->data, dtype, tensor->numel());
  return tensor;
}

template absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t>, DType, std::span<const float>);
template absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t>, DType, std::span<const uint16_t>);
template absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t>, DType, std::span<const int8_t>);
template absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t>, DType, std::span<const uint8_t>);
template absl::StatusOr<Tensor> Tensor::FromVector(std::span<const int64_t>, DType, std::span<const int32_t>);

Tensor Tensor::View(std::shared_ptr<Storage> storage, Shape shape, Shape strides, DType dtype, int64_t offset) {
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.shape_ = std::move(shape);
  tensor.strides_ = std::move(strides);
  tensor.dtype_ = dtype;
  tensor.offset_ = offset;
  return tensor;
}

int64_t Tensor::numel() const {
  uint64_t count = 1;  // may wrap on the way to 0
  for (int64_t size : shape_) count *= static_cast<uint64_t>(size);
  return static_cast<int64_t>(count);
}

bool Tensor::has_storage() const { return storage_ != nullptr && !storage_->released(); }

bool Tensor::IsContiguous() const {
  int64_t step = 1;
  bool dense = true;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] == 0) return true;
    if (shape_[i] == 1) continue;
    dense &= strides_[i] == step;
    step *= shape_[i];
  }
  return dense;
}

absl::StatusOr<Tensor::Pinned> Tensor::Pin() const {
  std::shared_ptr<Memory> memory = storage_ == nullptr ? nullptr : storage_->memory();
  if (memory == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the tensor ", ToString(),
                                                      " is storage-free: its data was released when a kernel's pack "
                                                      "took its place; take the parameter from its layer again"));
  }
  std::byte* data = memory->data() + offset_;
  return Pinned{std::move(memory), data};
}

absl::StatusOr<Tensor> Tensor::Slice(int64_t dim, int64_t start, int64_t count, int64_t step) const {
  const absl::StatusOr<size_t> axis = ResolveDim(dim, ndim());
  if (!axis.ok()) return axis.status();
  const int64_t size = shape_[*axis];
  int64_t span = 0, last = 0;
  const bool fits = count >= 0 && step != 0 &&
                    (count == 0 || (start >= 0 && start < size && !__builtin_mul_overflow(count - 1, step, &span) &&
                                    !__builtin_add_overflow(start, span, &last) && last >= 0 && last < size));
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(count, " elements from ", start, " in steps of ", step,
                                                   " do not lie in dimension ", *axis, " of ", ToString()));
  }
  Tensor view = *this;
  view.shape_[*axis] = count;
  // A step that is never taken may be anything; keep it from overflowing.
  if (count > 1) view.strides_[*axis] *= step;
  if (count > 0) view.offset_ += start * strides_[*axis] * static_cast<int64_t>(ir::SizeOf(dtype_));
  return view;
}

absl::StatusOr<Tensor> Tensor::Select(int64_t dim, int64_t index) const {
  const absl::StatusOr<size_t> axis = ResolveDim(dim, ndim());
  if (!axis.ok()) return axis.status();
  absl::StatusOr<Tensor> view = Slice(dim, index, 1);
  if (!view.ok()) return view;
  view->shape_.erase(view->shape_.begin() + static_cast<std::ptrdiff_t>(*axis));
  view->strides_.erase(view->strides_.begin() + static_cast<std::ptrdiff_t>(*axis));
  return view;
}

absl::StatusOr<Tensor> Tensor::Reshape(std::span<const int64_t> shape) const {
  const absl::StatusOr<int64_t> bytes = CheckedBytes(shape, dtype_);
  if (!bytes.ok()) return bytes.status();
  if (*bytes != nbytes()) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(), " does not reshape to ", ShapeString(shape)));
  }
  if (!IsContiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " is not contiguous; reshape its contiguous() copy instead"));
  }
  return View(storage_, Shape(shape.begin(), shape.end()), RowMajorStrides(shape), dtype_, offset_);
}

absl::StatusOr<Tensor> Tensor::Contiguous() const {
  if (IsContiguous()) return *this;
  return Clone();
}

absl::StatusOr<Tensor> Tensor::Clone() const {
  const absl::StatusOr<Pinned> source = Pin();
  if (!source.ok()) return source.status();
  absl::StatusOr<Tensor> copy = Empty(shape_, dtype_);
  if (!copy.ok()) return copy;
  CopyStrided(shape_, ir::SizeOf(dtype_), {source->data, strides_}, {copy->Pin()->data, copy->strides_});
  return copy;
}

absl::StatusOr<Tensor> Tensor::To(DType dtype) const {
  if (dtype == dtype_) return *this;
  if (!ir::IsFloat(dtype) || !ir::IsFloat(dtype_)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " does not convert to ", Text(ir::Name(dtype)), ": only float types convert"));
  }
  const absl::StatusOr<Tensor> dense = Contiguous();
  if (!dense.ok()) return dense.status();
  const absl::StatusOr<Pinned> source = dense->Pin();
  if (!source.ok()) return source.status();
  absl::StatusOr<Tensor> result = Empty(shape_, dtype);
  if (!result.ok()) return result;
  ConvertFloats(source->data, dtype_, result->Pin()->data, dtype, numel());
  return result;
}

std::string Tensor::ToString() const { return absl::StrCat(Text(ir::Name(dtype_)), ShapeString(shape_)); }

absl::StatusOr<std::vector<Tensor>> SplitWithSizes(const Tensor& x, std::span<const int64_t> sizes, int64_t dim) {
  const absl::StatusOr<size_t> axis = ResolveDim(dim, x.ndim());
  if (!axis.ok()) return axis.status();
  int64_t total = 0;
  bool valid = true;
  for (int64_t size : sizes) valid = valid && size >= 0 && !__builtin_add_overflow(total, size, &total);
  if (!valid || total != x.shape()[*axis]) {
    return absl::InvalidArgumentError(absl::StrCat("split sizes ", ShapeString(sizes), " do not add up to ",
                                                   x.shape()[*axis], ", the size of dimension ", *axis, " of ",
                                                   x.ToString()));
  }
  std::vector<Tensor> views;
  views.reserve(sizes.size());
  int64_t start = 0;
  for (int64_t size : sizes) {
    absl::StatusOr<Tensor> view = x.Slice(static_cast<int64_t>(*axis), start, size);
    if (!view.ok()) return view.status();
    views.push_back(*std::move(view));
    start += size;
  }
  return views;
}

absl::StatusOr<Tensor> Concat(std::span<const Tensor> tensors, int64_t dim) {
  if (tensors.empty()) return absl::InvalidArgumentError("concat of no tensors");
  const Tensor& first = tensors[0];
  const absl::StatusOr<size_t> axis = ResolveDim(dim, first.ndim());
  if (!axis.ok()) return axis.status();
  Shape shape = first.shape();
  shape[*axis] = 0;
  for (const Tensor& tensor : tensors) {
    Shape other = tensor.shape();
    if (other.size() == shape.size()) other[*axis] = shape[*axis];
    if (other != shape || tensor.dtype() != first.dtype()) {
      return absl::InvalidArgumentError(absl::StrCat("concat along dimension ", *axis, " of ", first.ToString(),
                                                     " and ", tensor.ToString(),
                                                     ": the other sizes and the dtypes must be equal"));
    }
    if (__builtin_add_overflow(shape[*axis], tensor.shape()[*axis], &shape[*axis])) {
      return absl::InvalidArgumentError("concat: the sizes add up to more than the address space");
    }
  }
  absl::StatusOr<Tensor> result = Tensor::Empty(shape, first.dtype());
  if (!result.ok()) return result;
  int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    const absl::StatusOr<Tensor::Pinned> source = tensor.Pin();
    if (!source.ok()) return source.status();
    const absl::StatusOr<Tensor> place = result->Slice(static_cast<int64_t>(*axis), start, tensor.shape()[*axis]);
    if (!place.ok()) return place.status();
    CopyStrided(tensor.shape(), ir::SizeOf(tensor.dtype()), {source->data, tensor.strides()},
                {place->Pin()->data, place->strides()});
    start += tensor.shape()[*axis];
  }
  return result;
}

std::string ShapeString(std::span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace clikart
