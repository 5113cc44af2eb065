#include "tensor_copy.h"

#include <bit>
#include <cstring>

#include "absl/container/inlined_vector.h"

namespace clikart {
namespace {

using ir::DType;

struct Dim {
  int64_t size, from, to;  // strides in elements
};

// Without dimensions of one element, and with neighbours joined where both sides run on: a copy of
// two contiguous tensors is one dimension, that of a slice of rows two.
absl::InlinedVector<Dim, 6> Collapse(std::span<const int64_t> shape, const StridedBytes& from, const StridedBytes& to) {
  absl::InlinedVector<Dim, 6> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const Dim dim{shape[i], from.strides[i], to.strides[i]};
    if (!dims.empty() && dims.back().from == dim.size * dim.from && dims.back().to == dim.size * dim.to) {
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims.push_back({1, 1, 1});
  return dims;
}

template <size_t kSize>
void CopyRow(const Dim& dim, const std::byte* from, std::byte* to) {
  if (dim.from == 1 && dim.to == 1) {
    std::memcpy(to, from, static_cast<size_t>(dim.size) * kSize);
    return;
  }
  const int64_t from_step = dim.from * static_cast<int64_t>(kSize), to_step = dim.to * static_cast<int64_t>(kSize);
  for (int64_t i = 0; i < dim.size; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
}

template <size_t kSize>
void CopyDims(std::span<const Dim> dims, const std::byte* from, std::byte* to) {
  if (dims.size() == 1) return CopyRow<kSize>(dims[0], from, to);
  const int64_t size = static_cast<int64_t>(kSize);
  for (int64_t i = 0; i < dims[0].size; ++i) {
    CopyDims<kSize>(dims.subspan(1), from + i * dims[0].from * size, to + i * dims[0].to * size);
  }
}

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float Widen(DType type, const std::byte* p) {
  switch (type) {
    case DType::kFloat16:
      return ir::HalfToFloat(Load<uint16_t>(p));
    case DType::kBFloat16:
      return ir::BFloat16ToFloat(Load<uint16_t>(p));
    default:
      return Load<float>(p);
  }
}

// The loop with both types known, so that the switch is outside of it.
template <DType kFrom, DType kTo>
void Convert(const std::byte* from, std::byte* to, int64_t count) {
  constexpr size_t from_size = ir::SizeOf(kFrom), to_size = ir::SizeOf(kTo);
  for (int64_t i = 0; i < count; ++i) {
    const float value = Widen(kFrom, from + i * from_size);
    if constexpr (kTo == DType::kFloat32) {
      std::memcpy(to + i * to_size, &value, to_size);
    } else {
      const uint16_t bits = kTo == DType::kFloat16 ? ir::FloatToHalf(value) : ir::FloatToBFloat16(value);
      std::memcpy(to + i * to_size, &bits, to_size);
    }
  }
}

template <DType kFrom>
void ConvertFrom(const std::byte* from, std::byte* to, DType to_type, int64_t count) {
  switch (to_type) {
    case DType::kFloat32:
      return Convert<kFrom, DType::kFloat32>(from, to, count);
    case DType::kFloat16:
      return Convert<kFrom, DType::kFloat16>(from, to, count);
    case DType::kBFloat16:
      return Convert<kFrom, DType::kBFloat16>(from, to, count);
    default:
      return;
  }
}

}  // namespace

void CopyStrided(std::span<const int64_t> shape, size_t size, const StridedBytes& from, const StridedBytes& to) {
  for (int64_t extent : shape) {
    if (extent == 0) return;
  }
  const auto dims = Collapse(shape, from, to);
  switch (size) {
    case 1:
      return CopyDims<1>(dims, from.data, to.data);
    case 2:
      return CopyDims<2>(dims, from.data, to.data);
    default:
      return CopyDims<4>(dims, from.data, to.data);
  }
}

void ConvertFloats(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t count) {
  if (count == 0) return;
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(count) * ir::SizeOf(from_type));
    return;
  }
  switch (from_type) {
    case DType::kFloat32:
      return ConvertFrom<DType::kFloat32>(from, to, to_type, count);
    case DType::kFloat16:
      return ConvertFrom<DType::kFloat16>(from, to, to_type, count);
    case DType::kBFloat16:
      return ConvertFrom<DType::kBFloat16>(from, to, to_type, count);
    default:
      return;
  }
}

}  // namespace clikart
