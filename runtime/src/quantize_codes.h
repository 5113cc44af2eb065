// The code nearest to a number.
#pragma once

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
  const Level& Nearest(double value) const;
  double least() const { return levels_.front().value; }
  double greatest() const { return levels_.back().value; }

 private:
  std::vector<Level> levels_;      // values ascending
  std::vector<double> midpoints_;  // between a level and the next; exact
};

// Integers as codes: `least` to `greatest`.
struct IntegerLevels {
  int least;
  int greatest;

  // Of the values code - zero. One that lies half way between two takes the even value; values beyond the ends
  // take the end.
  Level Nearest(double value, int zero) const;
};

// As QuantScheme stores them: -128 to 127 for symmetric 8-bit codes, else from 0.
IntegerLevels IntegerLevelsOf(const ir::QuantScheme& scheme);

}  // namespace clikart
