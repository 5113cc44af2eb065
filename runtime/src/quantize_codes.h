// The code nearest to a number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clikart/ir/quant_scheme.h"

namespace clikart {

struct Level {
  double value;  // what the code stands for, before the scale
  uint8_t code;
};

// The codes of a codebook (nf4, e2m1, e4m3, e5m2) by their values. Infinities and NaNs are no candidates, and
// zero is the code 0.
class CodebookLevels {
 public:
  explicit CodebookLevels(const ir::QuantScheme& scheme);

  // Of two codes equally near the even one, which for a minifloat is rounding to nearest even. Values beyond
  // the ends take the end.
  const Level& Nearest(double value) const {
    size_t below = 0;  // midpoints below `value`: a binary search without branches
    for (size_t step = (midpoints_.size() + 1) / 2; step > 0; step /= 2) {
      below += midpoints_[below + step - 1] < value ? step : 0;
    }
    const bool odd_tie = below < midpoints_.size() && midpoints_[below] == value && levels_[below].code % 2 != 0;
    return levels_[below + (odd_tie ? 1 : 0)];
  }
  double least() const { return levels_.front().value; }
  double greatest() const { return levels_.back().value; }

 private:
  std::vector<Level> levels_;  // values ascending
  // Between a level and the next, exactly; infinity after the last, up to a power of two less one.
  std::vector<double> midpoints_;
};

// Integers as codes: `least` to `greatest`.
struct IntegerLevels {
  int least;
  int greatest;

  // Of the values code - zero. One that lies half way between two takes the even value; values beyond the ends
  // take the end.
  Level Nearest(double value, int zero) const {
    constexpr double kWhole = 0x1.8p52;  // beside it doubles are integers, so adding it rounds to nearest even
    const double nearest = (std::clamp<double>(value, least - zero, greatest - zero) + kWhole) - kWhole;
    return {nearest, static_cast<uint8_t>(static_cast<int>(nearest) + zero)};
  }
};

// As QuantScheme stores them: -128 to 127 for symmetric 8-bit codes, else from 0.
IntegerLevels IntegerLevelsOf(const ir::QuantScheme& scheme);

}  // namespace clikart
