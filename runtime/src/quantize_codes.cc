#include "quantize_codes.h"

#include <algorithm>
#include <cmath>

namespace clikart {

CodebookLevels::CodebookLevels(const ir::QuantScheme& scheme) {
  for (int code = 0; code < 1 << scheme.bits; ++code) {
    const double value = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
    const bool minus_zero = value == 0 && std::signbit(value);
    if (std::isfinite(value) && !minus_zero) levels_.push_back({value, static_cast<uint8_t>(code)});
  }
  std::sort(levels_.begin(), levels_.end(), [](const Level& a, const Level& b) { return a.value < b.value; });
  for (size_t i = 1; i < levels_.size(); ++i) midpoints_.push_back((levels_[i - 1].value + levels_[i].value) / 2);
}

const Level& CodebookLevels::Nearest(double value) const {
  const auto midpoint = std::lower_bound(midpoints_.begin(), midpoints_.end(), value);
  const auto below = static_cast<size_t>(midpoint - midpoints_.begin());
  const bool tie = midpoint != midpoints_.end() && *midpoint == value;
  return levels_[tie && levels_[below].code % 2 != 0 ? below + 1 : below];
}

Level IntegerLevels::Nearest(double value, int zero) const {
  const double nearest = std::nearbyint(std::clamp<double>(value, least - zero, greatest - zero));
  return {nearest, static_cast<uint8_t>(static_cast<int>(nearest) + zero)};
}

IntegerLevels IntegerLevelsOf(const ir::QuantScheme& scheme) {
  const int count = 1 << scheme.bits;
  const int least = scheme.CodeDType() == ir::DType::kInt8 ? -count / 2 : 0;
  return {least, least + count - 1};
}

}  // namespace clikart
