// One group of weights: its scale, its zero point or minimum, its codes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "clikart/ir/quant_scheme.h"
#include "clikart/nn.h"
#include "quantize_codes.h"

namespace clikart {

// What a code of the group stands for: scale * value + minimum, where the value of an integer code is code - zero.
struct GroupGrid {
  uint32_t scale_bits = 0;  // as stored
  double scale = 0;         // as multiplied with, a global scale included
  int zero = 0;
  uint32_t minimum_bits = 0;
  double minimum = 0;
};

// Weights, and what the squared error of each counts; empty: 1.
struct GroupWeights {
  std::span<const float> values;
  std::span<const float> importance = {};
};

class GroupQuantizer {
 public:
  // `global_scale` multiplies every stored scale; 1 where the scheme has none.
  GroupQuantizer(const ir::QuantScheme& scheme, ScaleSearch search, float global_scale = 1.0f);

  // The grid for finite weights; none where the scale type does not reach them. kMinMax: the least scale that
  // can be stored and whose codes cover the group. kMse: the one with the least squared error among that one,
  // those that cover a range shrunk by up to a half, and what a least-squares fit to the codes makes of each.
  std::optional<GroupGrid> Fit(const GroupWeights& weights) const;
  // The nearest codes, one a byte.
  void Encode(std::span<const float> weights, const GroupGrid& grid, uint8_t* codes) const;

 private:
  struct Range {
    double low = 0;
    double high = 0;
  };
  // Sums over a group's weights w and the values v of their codes, each term times its importance.
  struct Moments {
    double error = 0;  // (w - scale * v - minimum)^2
    double count = 0;
    double v = 0;
    double vv = 0;
    double w = 0;
    double wv = 0;
  };

  Range RangeOf(std::span<const float> weights) const;
  Range Shrunk(const Range& range, double factor) const;
  bool StoreScale(double wanted, GroupGrid& grid) const;
  bool StoreMinimum(double wanted, GroupGrid& grid) const;
  std::optional<GroupGrid> Cover(const Range& range) const;
  std::optional<GroupGrid> FitTo(const Moments& moments, const GroupGrid& grid) const;
  Level Nearest(float weight, const GroupGrid& grid) const;
  Moments MomentsOf(const GroupWeights& weights, const GroupGrid& grid) const;

  const ir::QuantScheme scheme_;
  const ScaleSearch search_;
  const double global_scale_;
  const std::optional<CodebookLevels> codebook_;  // none: integers
  const IntegerLevels integers_;
};

// The global scale with which the group of the greatest weight, `peak`, gets the greatest scale that can be
// stored. It is at least 2^-117, so that its product with any stored scale is normal.
float GlobalScaleFor(const ir::QuantScheme& scheme, float peak);

}  // namespace clikart
