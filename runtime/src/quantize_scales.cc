#include "quantize_scales.h"

#include <bit>

namespace clikart {
namespace {

// e4m3 has neither infinities nor a sign in use, so its scales are counted from zero up, as floats are: the unit
// around zero once for each of the first 2^(bits + 1), then doubling.
uint32_t CountUpTo(double value, const ScaleFormat& format) {
  const int shift = 52 - format.mantissa_bits;
  const uint64_t least_normal =
      std::bit_cast<uint64_t>(format.least_unit * static_cast<double>(1 << format.mantissa_bits));
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  if (bits < least_normal) return static_cast<uint32_t>(value / format.least_unit);
  return static_cast<uint32_t>((bits - least_normal) >> shift) + (1u << format.mantissa_bits);
}

}  // namespace

ScaleFormat::ScaleFormat(ir::ScaleType scale_type) : type(scale_type) {
  switch (type) {
    case ir::ScaleType::kFloat32:
      mantissa_bits = 23, least_unit = 0x1p-149, least = 0x1p-126, greatest = 0x1.fffffep127;
      break;
    case ir::ScaleType::kFloat16:
      mantissa_bits = 10, least_unit = 0x1p-24, least = 0x1p-24, greatest = 65504;
      break;
    case ir::ScaleType::kBFloat16:
      mantissa_bits = 7, least_unit = 0x1p-133, least = 0x1p-126, greatest = 0x1.fep127;
      break;
    case ir::ScaleType::kE8m0:
      mantissa_bits = 0, least_unit = 0x1p-126, least = 0x1p-126, greatest = 0x1p127;
      break;
    case ir::ScaleType::kE4m3:
      mantissa_bits = 3, least_unit = 0x1p-9, least = 0x1p-9, greatest = 448;
      break;
  }
}

// Every type counts its numbers from zero up, and has the sign, where it has one, above the count.
uint32_t ScaleFormat::BitsOf(double value) const {
  if (value < 0) return CountUpTo(-value, *this) | (type == ir::ScaleType::kFloat32 ? 0x80000000 : 0x8000);
  return CountUpTo(value, *this);
}

}  // namespace clikart
