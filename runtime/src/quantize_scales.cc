#include "quantize_scales.h"

#include <algorithm>
#include <ranges>

namespace clikart {
namespace {

// Bits of the least and the greatest scale in use. Between them more bits mean a greater scale, in every type.
struct ScaleRange {
  uint32_t least;
  uint32_t greatest;
};

ScaleRange RangeOf(ir::ScaleType type) {
  switch (type) {
    case ir::ScaleType::kFloat32:
      return {0x00800000, 0x7f7fffff};
    case ir::ScaleType::kFloat16:
      return {0x0001, 0x7bff};
    case ir::ScaleType::kBFloat16:
      return {0x0080, 0x7f7f};
    case ir::ScaleType::kE8m0:
      return {1, 254};
    case ir::ScaleType::kE4m3:
      return {1, 0x7e};
  }
  return {0, 0};
}

}  // namespace

std::optional<uint32_t> LeastScale(ir::ScaleType type, double wanted) {
  const ScaleRange range = RangeOf(type);
  const auto all = std::views::iota(range.least, range.greatest + 1);
  const auto found = std::ranges::partition_point(
      all, [&](uint32_t bits) { return static_cast<double>(ir::DecodeScale(type, bits)) < wanted; });
  if (found == all.end()) return std::nullopt;
  return *found;
}

float GreatestScale(ir::ScaleType type) { return ir::DecodeScale(type, RangeOf(type).greatest); }

}  // namespace clikart
