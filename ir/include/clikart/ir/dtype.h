// Element types and the exact conversions between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace clikart::ir {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kInt8, kUInt8, kInt32 };

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

constexpr bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// The full name, as Python shows it: "float32", "bfloat16", ...
std::string_view Name(DType dtype);
// The short name of kernel signatures: "f32", "bf16", "s8", "u8", "s32".
std::string_view ShortName(DType dtype);
// Takes either spelling.
std::optional<DType> ParseDType(std::string_view text);

// Widening is exact; NaNs stay NaNs (quiet).
float HalfToFloat(uint16_t bits);
float BFloat16ToFloat(uint16_t bits);

// Narrowing rounds to nearest even and keeps subnormals; a NaN stays a NaN whatever its payload.
uint16_t FloatToHalf(float value);
uint16_t FloatToBFloat16(float value);

}  // namespace clikart::ir
