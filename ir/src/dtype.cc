#include "clikart/ir/dtype.h"

#include <array>
#include <bit>

namespace clikart::ir {
namespace {

struct Names {
  DType dtype;
  std::string_view name, short_name;
};

constexpr std::array<Names, 6> kNames = {{
    {DType::kFloat32, "float32", "f32"},
    {DType::kFloat16, "float16", "f16"},
    {DType::kBFloat16, "bfloat16", "bf16"},
    {DType::kInt8, "int8", "s8"},
    {DType::kUInt8, "uint8", "u8"},
    {DType::kInt32, "int32", "s32"},
}};

}  // namespace

std::string_view Name(DType dtype) { return kNames[static_cast<size_t>(dtype)].name; }
std::string_view ShortName(DType dtype) { return kNames[static_cast<size_t>(dtype)].short_name; }

std::optional<DType> ParseDType(std::string_view text) {
  for (const Names& names : kNames) {
    if (text == names.name || text == names.short_name) return names.dtype;
  }
  return std::nullopt;
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | quiet);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float BFloat16ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return std::bit_cast<float>(wide);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  if (magnitude >= 0x477ff000) return sign | 0x7c00;                 // rounds to 65536 or is beyond
  if (magnitude < 0x38800000) {                                      // below 2^-14: a multiple of 2^-24, ties to even
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;  // exact, below 1024
    const float rounded = (scaled + 0x1p23f) - 0x1p23f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(rounded));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | (((magnitude + 0xfff + odd) >> 13) - (112u << 10)));
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // quiet
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace clikart::ir
