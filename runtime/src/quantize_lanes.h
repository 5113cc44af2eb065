// Doubles side by side, one a lane, as plain arithmetic on GCC's vectors. Every operation is correctly rounded in its
// lane, so that the number of lanes changes no bit. Everything here has to be inlined: a caller may be compiled for an
// ISA in which vectors are passed in another way.
#pragma once

#include <bit>
#include <cstdint>

#pragma GCC diagnostic ignored "-Wpsabi"  // tells of calls with vectors, of which none is left
#define CLIKART_LANES [[gnu::always_inline]] inline

namespace clikart {

template <int kLanes>
struct LaneTypes {
  typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));     // GCC loses it in a using
  typedef int64_t Integers __attribute__((vector_size(kLanes * sizeof(int64_t))));  // of a comparison: -1 where true
};
template <int kLanes>
using Doubles = typename LaneTypes<kLanes>::Doubles;
template <int kLanes>
using Integers = typename LaneTypes<kLanes>::Integers;

template <int kLanes>
CLIKART_LANES Doubles<kLanes> Splat(double value) {
  Doubles<kLanes> all;
  for (int lane = 0; lane < kLanes; ++lane) all[lane] = value;
  return all;
}

template <typename V>
CLIKART_LANES V Least(const V& a, const V& b) {
  return a < b ? a : b;
}
template <typename V>
CLIKART_LANES V Greatest(const V& a, const V& b) {
  return a > b ? a : b;
}

template <int kLanes>
CLIKART_LANES bool Any(const Integers<kLanes>& mask) {
  int64_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= mask[lane];
  return any != 0;
}

// The nearest multiple of `unit`, a power of two, of two equally near ones the even multiple. For magnitudes below
// 2^51 units: beside 1.5 * 2^52 units doubles are multiples of the unit.
template <typename V>
CLIKART_LANES V NearestMultiple(const V& value, const V& unit) {
  const V beside = unit * 0x1.8p52;
  return (value + beside) - beside;
}

// The distance between floats of `mantissa_bits` at `value`: a power of two, and at least `least`.
template <int kLanes>
CLIKART_LANES Doubles<kLanes> UnitAt(const Doubles<kLanes>& value, int mantissa_bits, double least) {
  const Integers<kLanes> exponent = std::bit_cast<Integers<kLanes>>(value) & (int64_t{0x7ff} << 52);
  const double share = std::bit_cast<double>(static_cast<int64_t>(1023 - mantissa_bits) << 52);
  return Greatest(std::bit_cast<Doubles<kLanes>>(exponent) * share, Splat<kLanes>(least));
}

// The nearest float, for magnitudes that floats reach.
template <int kLanes>
CLIKART_LANES Doubles<kLanes> ToFloat(const Doubles<kLanes>& value) {
  return NearestMultiple(value, UnitAt<kLanes>(value, 23, 0x1p-149));
}

// Whole numbers of either sign, below 2^51, as integers.
template <int kLanes>
CLIKART_LANES Integers<kLanes> ToIntegers(const Doubles<kLanes>& whole) {
  return std::bit_cast<Integers<kLanes>>(whole + 0x1.8p52) - std::bit_cast<int64_t>(0x1.8p52);
}

}  // namespace clikart
