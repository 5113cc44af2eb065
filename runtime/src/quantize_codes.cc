#include "quantize_codes.h"

#include <bit>
#include <cmath>
#include <limits>

namespace clikart {

CodebookLevels::CodebookLevels(const ir::QuantScheme& scheme) {
  for (int code = 0; code < 1 << scheme.bits; ++code) {
    const double value = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
    const bool minus_zero = value == 0 && std::signbit(value);
    if (std::isfinite(value) && !minus_zero) levels_.push_back({value, static_cast<uint8_t>(code)});
  }
  std::sort(levels_.begin(), levels_.end(), [](const Level& a, const Level& b) { return a.value < b.value; });
  for (size_t i = 1; i < levels_.size(); ++i) midpoints_.push_back((levels_[i - 1].value + levels_[i].value) / 2);
  midpoints_.resize(std::bit_ceil(levels_.size()) - 1, std::numeric_limits<double>::infinity());
}

IntegerLevels IntegerLevelsOf(const ir::QuantScheme& scheme) {
  const int count = 1 << scheme.bits;
  const int least = scheme.CodeDType() == ir::DType::kInt8 ? -count / 2 : 0;
  return {least, least + count - 1};
}

}  // namespace clikart
