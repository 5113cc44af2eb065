// Scales and minimums in their storage type, rounded so that they cover what they have to.
#pragma once

#include <cstdint>

#include "clikart/ir/quant_scheme.h"
#include "quantize_lanes.h"

namespace clikart {

// The numbers of a scale type: multiples of the unit at each.
struct ScaleFormat {
  ir::ScaleType type;
  int mantissa_bits;
  double least_unit;  // around zero
  // The scales in use are finite, positive and normal as f32 (2^-126 and up), so that dividing by one and
  // multiplying with it are as exact as f32 can be, also for a group of zeros.
  double least;
  double greatest;

  explicit ScaleFormat(ir::ScaleType scale_type);

  // The least scale that is at least `wanted`, which is not negative. Above the greatest: there is none, or `wanted`
  // is no number.
  template <int kLanes>
  CLIKART_LANES Doubles<kLanes> LeastScale(const Doubles<kLanes>& wanted) const;

  // The greatest number of f32, f16 or bf16 that is at most `wanted`, which is finite. Below -greatest: there is none.
  template <int kLanes>
  CLIKART_LANES Doubles<kLanes> GreatestMinimum(const Doubles<kLanes>& wanted) const;

  // How one of the numbers is stored.
  uint32_t BitsOf(double value) const;
};

template <int kLanes>
CLIKART_LANES Doubles<kLanes> ScaleFormat::LeastScale(const Doubles<kLanes>& wanted) const {
  const Doubles<kLanes> bounded = Least(wanted, Splat<kLanes>(0x1p200));  // no number: the bound
  const Doubles<kLanes> unit = UnitAt<kLanes>(bounded, mantissa_bits, least_unit);
  const Doubles<kLanes> near = NearestMultiple(bounded, unit);
  return Greatest(near < bounded ? near + unit : near, Splat<kLanes>(least));
}

template <int kLanes>
CLIKART_LANES Doubles<kLanes> ScaleFormat::GreatestMinimum(const Doubles<kLanes>& wanted) const {
  const Doubles<kLanes> unit = UnitAt<kLanes>(wanted, mantissa_bits, least_unit);
  const Doubles<kLanes> near = NearestMultiple(wanted, unit);
  return Least(near > wanted ? near - unit : near, Splat<kLanes>(greatest));
}

}  // namespace clikart
