#include "quantize_scales.h"

#include <algorithm>
#include <array>
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

// Scales of one byte by their bits: decoding one runs a program.
using ByteScales = std::array<float, 256>;

ByteScales ByteScalesOf(ir::ScaleType type) {
  ByteScales values;
  for (uint32_t bits = 0; bits < values.size(); ++bits) values[bits] = ir::DecodeScale(type, bits);
  return values;
}

// The first of these bits whose value is at least `wanted`; none when all are below.
std::optional<uint32_t> FirstFrom(ir::ScaleType type, uint32_t first, uint32_t last, double wanted) {
  const auto all = std::views::iota(first, last + 1);
  const auto found = std::ranges::partition_point(
      all, [&](uint32_t bits) { return static_cast<double>(ScaleValue(type, bits)) < wanted; });
  return found == all.end() ? std::nullopt : std::optional<uint32_t>(*found);
}

}  // namespace

float ScaleValue(ir::ScaleType type, uint32_t bits) {
  static const ByteScales e8m0 = ByteScalesOf(ir::ScaleType::kE8m0), e4m3 = ByteScalesOf(ir::ScaleType::kE4m3);
  if (type == ir::ScaleType::kE8m0) return e8m0[bits];
  if (type == ir::ScaleType::kE4m3) return e4m3[bits];
  return ir::DecodeScale(type, bits);
}

std::optional<uint32_t> LeastScale(ir::ScaleType type, double wanted) {
  const ScaleRange range = RangeOf(type);
  return FirstFrom(type, range.least, range.greatest, wanted);
}

std::optional<uint32_t> GreatestMinimum(ir::ScaleType type, double wanted) {
  const uint32_t greatest = RangeOf(type).greatest;
  if (wanted < 0) {
    const uint32_t sign = type == ir::ScaleType::kFloat32 ? 0x80000000 : 0x8000;
    const std::optional<uint32_t> magnitude = FirstFrom(type, 0, greatest, -wanted);
    return magnitude.has_value() ? std::optional<uint32_t>(*magnitude | sign) : std::nullopt;
  }
  const uint32_t above = FirstFrom(type, 0, greatest, wanted).value_or(greatest);
  return ScaleValue(type, above) > wanted ? above - 1 : above;
}

float GreatestScale(ir::ScaleType type) { return ScaleValue(type, RangeOf(type).greatest); }

}  // namespace clikart
