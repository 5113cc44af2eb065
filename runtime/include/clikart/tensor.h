// Tensors: n-d handles on shared memory.
//
// Three levels. Memory is bytes with an owner. Storage is a slot that holds a Memory until it is
// released: every handle and view of a parameter shares its slot, so when a pack replaces the
// weight, all of them become storage-free at once. A Tensor is a shape, strides and a place in a
// Storage. Exports (NumPy, DLPack) take the Memory and so outlive a release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/ir/dtype.h"

namespace clikart {

using ir::DType;
using Shape = absl::InlinedVector<int64_t, 5>;

class Memory {
 public:
  // Uninitialized, 64-byte aligned; ResourceExhausted where the system has none.
  static absl::StatusOr<std::shared_ptr<Memory>> Allocate(size_t bytes);
  enum class Access : uint8_t { kReadOnly, kReadWrite };
  // Somebody else's bytes, alive as long as `owner`. `access` is for those who export them again.
  static std::shared_ptr<Memory> Wrap(std::byte* data, size_t bytes, std::shared_ptr<void> owner,
                                      Access access = Access::kReadWrite);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Access access() const { return access_; }
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

 private:
  friend struct MemoryAccess;
  Memory(std::byte* data, size_t bytes, std::shared_ptr<void> owner, bool owned, Access access = Access::kReadWrite);
  std::byte* data_;
  size_t bytes_;
  std::shared_ptr<void> owner_;
  Access access_;
  bool owned_;  // data_ came from aligned_alloc; small memories lie behind their header instead
};

class Storage {
 public:
  explicit Storage(std::shared_ptr<Memory> memory);
  std::shared_ptr<Memory> memory() const;  // null once released; safe against Release
  bool released() const { return (state_.load(std::memory_order_acquire) & kReleased) != 0; }
  void Release();

 private:
  // Readers that are copying memory_ right now, and two marks above them. No lock, so a fork finds
  // nothing locked; whoever leaves last after a release drops the memory.
  static constexpr uint32_t kReleased = 1u << 31;
  static constexpr uint32_t kDropped = 1u << 30;
  void Leave() const;
  void DropOnce() const;
  mutable std::atomic<uint32_t> state_{0};
  mutable std::shared_ptr<Memory> memory_;
};

class Tensor {
 public:
  Tensor() = default;  // shape [0], storage-free

  // A new contiguous tensor, uninitialized. InvalidArgument for a negative size or one that overflows.
  static absl::StatusOr<Tensor> Empty(std::span<const int64_t> shape, DType dtype);
  static absl::StatusOr<Tensor> Zeros(std::span<const int64_t> shape, DType dtype);
  // A copy of `values` (row-major). float goes to any float type, rounded to nearest even; uint16_t
  // is the bits of a float16 or bfloat16; int8_t, uint8_t and int32_t go to their own type.
  // InvalidArgument for another pair or another count.
  template <typename T>
  static absl::StatusOr<Tensor> FromVector(std::span<const int64_t> shape, DType dtype, std::span<const T> values);
  // A view on existing memory; `offset` in bytes, strides in elements (any sign).
  static Tensor View(std::shared_ptr<Storage> storage, Shape shape, Shape strides, DType dtype, int64_t offset);

  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  DType dtype() const { return dtype_; }
  int64_t ndim() const { return static_cast<int64_t>(shape_.size()); }
  int64_t numel() const;
  int64_t nbytes() const { return numel() * static_cast<int64_t>(ir::SizeOf(dtype_)); }
  bool has_storage() const;
  bool IsContiguous() const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  // bytes

  // The memory and the address of element 0: keep `memory` while the address is used.
  // FailedPrecondition for a storage-free tensor.
  struct Pinned {
    std::shared_ptr<Memory> memory;
    std::byte* data;
  };
  absl::StatusOr<Pinned> Pin() const;

  // Views. Slices as in Python (negative starts are the caller's to resolve; step may be negative).
  absl::StatusOr<Tensor> Slice(int64_t dim, int64_t start, int64_t count, int64_t step = 1) const;
  absl::StatusOr<Tensor> Select(int64_t dim, int64_t index) const;       // drops the dimension
  absl::StatusOr<Tensor> Reshape(std::span<const int64_t> shape) const;  // contiguous only
  // Itself when contiguous, else a copy.
  absl::StatusOr<Tensor> Contiguous() const;
  absl::StatusOr<Tensor> Clone() const;  // always a contiguous copy
  // Round to nearest even between float types; integer types only to themselves (InvalidArgument).
  absl::StatusOr<Tensor> To(DType dtype) const;

  std::string ToString() const;  // dtype and shape: "float32[2, 3]"

 private:
  Shape shape_{0};
  Shape strides_{1};
  DType dtype_ = DType::kFloat32;
  int64_t offset_ = 0;
  std::shared_ptr<Storage> storage_;
};

// Views along `dim` (negative counts from the end); InvalidArgument when the sizes do not add up.
absl::StatusOr<std::vector<Tensor>> SplitWithSizes(const Tensor& x, std::span<const int64_t> sizes, int64_t dim = -1);
// A new tensor; InvalidArgument when shapes or dtypes differ.
absl::StatusOr<Tensor> Concat(std::span<const Tensor> tensors, int64_t dim = -1);

std::string ShapeString(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace clikart
