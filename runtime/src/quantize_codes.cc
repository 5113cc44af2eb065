#include "quantize_codes.h"

#include <algorithm>
#include <cmath>

namespace clikart {

std::vector<Level> LevelsOf(const ir::QuantScheme& scheme) {
  std::vector<Level> levels;
  for (int code = 0; code < 1 << scheme.bits; ++code) {
    const double value = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
    const bool minus_zero = value == 0 && std::signbit(value);
    if (std::isfinite(value) && !minus_zero) levels.push_back({value, static_cast<uint8_t>(code)});
  }
  std::sort(levels.begin(), levels.end(), [](const Level& a, const Level& b) { return a.value < b.value; });
  return levels;
}

IntegerRounding::IntegerRounding(const ir::QuantScheme& scheme) {
  const int count = 1 << scheme.bits;
  least = scheme.CodeDType() == ir::DType::kInt8 ? -count / 2 : 0;
  greatest = least + count - 1;
}

// The levels have to be the type's numbers, code by code.
std::optional<MinifloatRounding> MinifloatRounding::Of(const std::vector<Level>& levels, int bits) {
  const auto zero = std::find_if(levels.begin(), levels.end(), [](const Level& level) { return level.value == 0; });
  if (zero == levels.end() || zero + 1 == levels.end()) return std::nullopt;
  for (int mantissa_bits = 1; mantissa_bits < bits - 1; ++mantissa_bits) {
    const MinifloatRounding type = {bits, mantissa_bits, zero[1].value, levels.back().value};
    const auto count = static_cast<size_t>(levels.end() - zero);
    bool same = levels.size() == 2 * count - 1;
    for (size_t i = 0; same && i < count; ++i) {
      const int mantissa = static_cast<int>(i) & ((1 << mantissa_bits) - 1);
      const int exponent = static_cast<int>(i) >> mantissa_bits;
      const int units = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      const double value = std::ldexp(units * type.least_unit, std::max(exponent - 1, 0));
      const Level& above = zero[static_cast<ptrdiff_t>(i)];
      const Level& below = zero[-static_cast<ptrdiff_t>(i)];
      same = above.value == value && below.value == -value && above.code == i &&
             (i == 0 || below.code == i + (size_t{1} << (bits - 1)));
    }
    if (same) return type;
  }
  return std::nullopt;
}

TableRounding::TableRounding(const std::vector<Level>& levels) : first(levels[0]) {
  for (size_t i = 1; i < levels.size(); ++i) {
    const double middle = (levels[i - 1].value + levels[i].value) / 2;
    const bool even_above = levels[i - 1].code % 2 != 0;
    above.push_back(even_above ? middle - std::abs(middle) * 0x1p-50 : middle);
    values.push_back(levels[i].value);
    codes.push_back(levels[i].code);
  }
}

AnyRounding RoundingOf(const ir::QuantScheme& scheme) {
  if (scheme.codebook == ir::Codebook::kInteger) return IntegerRounding(scheme);
  const std::vector<Level> levels = LevelsOf(scheme);
  const std::optional<MinifloatRounding> minifloat = MinifloatRounding::Of(levels, scheme.bits);
  if (minifloat.has_value()) return *minifloat;
  return TableRounding(levels);
}

}  // namespace clikart
