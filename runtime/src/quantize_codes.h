// The code nearest to a number.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "clikart/ir/quant_scheme.h"
#include "quantize_lanes.h"

namespace clikart {

struct Level {
  double value;  // what the code stands for, before the scale
  uint8_t code;
};

// The codes of a codebook (nf4, e2m1, e4m3, e5m2), their values ascending. Infinities and NaNs are no candidates, and
// zero is the code 0.
std::vector<Level> LevelsOf(const ir::QuantScheme& scheme);

// What a code of a lane's group stands for: scale * value + minimum, where the value of an integer is code - zero.
template <int kLanes>
struct CodeGrid {
  Doubles<kLanes> scale;
  Doubles<kLanes> zero;
  Doubles<kLanes> minimum;
};

// Three ways from a weight to the nearest value, and to its code; At<kLanes, kMinimum> is one of them at a grid, and
// may keep vectors in the scratch. Of two equally near, integers take the even value, codebooks the even code, which
// for a minifloat is rounding to nearest even; weights beyond the ends take the end. A quotient of floats in double
// never rounds onto the middle between two values, so ties are told exactly.

// Integers from `least` to `greatest`, less the zero point; kMinimum: with a minimum in the grid.
struct IntegerRounding {
  double least;
  double greatest;

  explicit IntegerRounding(const ir::QuantScheme& scheme);

  template <int kLanes, bool kMinimum>
  class At {
   public:
    CLIKART_LANES At(const IntegerRounding& integers, const CodeGrid<kLanes>& grid, Doubles<kLanes>*)
        : scale_(grid.scale),
          zero_(grid.zero),
          minimum_(grid.minimum),
          least_(integers.least - grid.zero),
          greatest_(integers.greatest - grid.zero) {}
    CLIKART_LANES Doubles<kLanes> Value(const Doubles<kLanes>& weight) const {
      const Doubles<kLanes> number = (kMinimum ? weight - minimum_ : weight) / scale_;
      return NearestMultiple(Least(Greatest(number, least_), greatest_), Splat<kLanes>(1));
    }
    CLIKART_LANES Integers<kLanes> Code(const Doubles<kLanes>& weight) const {
      return ToIntegers<kLanes>(Value(weight) + zero_);
    }

   private:
    const Doubles<kLanes> scale_, zero_, minimum_, least_, greatest_;
  };
};

// Floats of a sign, an exponent and at least one bit of mantissa.
struct MinifloatRounding {
  int bits;  // of a code
  int mantissa_bits;
  double least_unit;  // around zero
  double greatest;

  // What the levels are, if they are all numbers of such a type up to a greatest one.
  static std::optional<MinifloatRounding> Of(const std::vector<Level>& levels, int bits);

  template <int kLanes, bool>
  class At {
   public:
    CLIKART_LANES At(const MinifloatRounding& type, const CodeGrid<kLanes>& grid, Doubles<kLanes>*)
        : type_(type), scale_(grid.scale) {}
    CLIKART_LANES Doubles<kLanes> Value(const Doubles<kLanes>& weight) const {
      const Doubles<kLanes> number = weight / scale_;
      const Doubles<kLanes> bounded =
          Least(Greatest(number, Splat<kLanes>(-type_.greatest)), Splat<kLanes>(type_.greatest));
      return NearestMultiple(bounded, UnitOf(bounded));
    }
    // A value counts its units; each binade above the first has 2^mantissa_bits codes more below it.
    CLIKART_LANES Integers<kLanes> Code(const Doubles<kLanes>& weight) const {
      const Doubles<kLanes> value = Value(weight), unit = UnitOf(value);
      const Integers<kLanes> negative = value < 0;
      const Integers<kLanes> units = ToIntegers<kLanes>((negative ? -value : value) / unit);
      const Integers<kLanes> binade =
          (std::bit_cast<Integers<kLanes>>(unit) - std::bit_cast<int64_t>(type_.least_unit)) >> 52;
      return units + (binade << type_.mantissa_bits) + (negative & (int64_t{1} << (type_.bits - 1)));
    }

   private:
    CLIKART_LANES Doubles<kLanes> UnitOf(const Doubles<kLanes>& value) const {
      return UnitAt<kLanes>(value, type_.mantissa_bits, type_.least_unit);
    }
    const MinifloatRounding& type_;
    const Doubles<kLanes> scale_;
  };
};

// Any levels: as many comparisons as there are steps between them.
struct TableRounding {
  static constexpr int kVectorsPerStep = 2;  // of scratch
  Level first;
  // A step is taken by numbers above the middle or, where the even code is above, above a number so little below the
  // middle that no quotient of floats lies between.
  std::vector<double> above;
  std::vector<double> values;  // after each step
  std::vector<double> codes;

  explicit TableRounding(const std::vector<Level>& levels);
  int64_t steps() const { return static_cast<int64_t>(above.size()); }

  template <int kLanes, bool>
  class At {
   public:
    CLIKART_LANES At(const TableRounding& table, const CodeGrid<kLanes>& grid, Doubles<kLanes>* scratch)
        : table_(table), steps_(table.steps()), above_(scratch), values_(scratch + steps_) {
      for (int64_t i = 0; i < steps_; ++i) {
        scratch[i] = grid.scale * table.above[static_cast<size_t>(i)];
        scratch[steps_ + i] = Splat<kLanes>(table.values[static_cast<size_t>(i)]);
      }
    }
    CLIKART_LANES Doubles<kLanes> Value(const Doubles<kLanes>& weight) const {
      Doubles<kLanes> value = Splat<kLanes>(table_.first.value);
#pragma GCC unroll 5
      for (int64_t i = 0; i < steps_; ++i) value = weight > above_[i] ? values_[i] : value;
      return value;
    }
    CLIKART_LANES Integers<kLanes> Code(const Doubles<kLanes>& weight) const {
      Doubles<kLanes> code = Splat<kLanes>(table_.first.code);
      for (int64_t i = 0; i < steps_; ++i) {
        code = weight > above_[i] ? Splat<kLanes>(table_.codes[static_cast<size_t>(i)]) : code;
      }
      return ToIntegers<kLanes>(code);
    }

   private:
    const TableRounding& table_;
    const int64_t steps_;
    const Doubles<kLanes>* const above_;
    const Doubles<kLanes>* const values_;
  };
};

using AnyRounding = std::variant<IntegerRounding, MinifloatRounding, TableRounding>;
AnyRounding RoundingOf(const ir::QuantScheme& scheme);

}  // namespace clikart
