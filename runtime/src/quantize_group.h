// One group of weights: its scale, its zero point, its codes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "clikart/ir/quant_scheme.h"
#include "clikart/nn.h"
#include "quantize_codes.h"

namespace clikart {

// What a code of the group stands for: scale * (code - zero) for integers, scale * value for a codebook.
struct GroupGrid {
  uint32_t scale_bits = 0;  // as stored
  double scale = 0;         // as multiplied with, a global scale included
  int zero = 0;
};

class GroupQuantizer {
 public:
  // `global_scale` multiplies every stored scale; 1 where the scheme has none.
  GroupQuantizer(const ir::QuantScheme& scheme, ScaleSearch search, float global_scale = 1.0f);

  // The grid for finite weights; none where the scale type does not reach them. kMinMax: the least scale that
  // can be stored and whose codes cover the group. kMse: of that one and those that cover a range shrunk by up
  // to a half, the one with the least squared error.
  std::optional<GroupGrid> Fit(std::span<const float> weights) const;
  // The nearest codes, one a byte.
  void Encode(std::span<const float> weights, const GroupGrid& grid, uint8_t* codes) const;

 private:
  struct Range {
    double low = 0;
    double high = 0;
  };
  static Range RangeOf(std::span<const float> weights);
  std::optional<GroupGrid> Cover(const Range& range) const;
  Level Nearest(float weight, const GroupGrid& grid) const;
  double SquaredError(std::span<const float> weights, const GroupGrid& grid) const;

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
