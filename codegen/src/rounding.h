// Whole numbers of units.
#pragma once

#include <cstdint>

namespace clikart::codegen {

inline constexpr int64_t kLine = 64;  // bytes of a cache line

constexpr int64_t CeilDiv(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }
constexpr int64_t RoundToLine(int64_t bytes) { return RoundUp(bytes, kLine); }

}  // namespace clikart::codegen
