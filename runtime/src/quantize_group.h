// One group of each of several rows, a row a lane: its scale, its zero point or minimum, its codes.
#pragma once

#include <cstdint>

#include "quantize_codes.h"
#include "quantize_scales.h"

namespace clikart {

// What a scheme asks of the grid of a group.
struct GridRules {
  ScaleFormat format;
  double global_scale;  // multiplies every stored scale; 1 where the scheme has none
  // What rounding took from a product with the global scale is not made up for by a whole step of the scale.
  double slack;
  bool zero_point;
  double midpoint;  // the zero of a group without a zero point
  double least;     // values, less the midpoint
  double greatest;
};

template <int kLanes>
struct Grid : CodeGrid<kLanes> {
  Doubles<kLanes> stored;    // the scale as the layer keeps it, without the global one
  Integers<kLanes> reached;  // false: the scale type does not reach the weights, and the rest means nothing
};

// The weights of a group, row beside row, and what the squared error of each counts; null: 1.
template <int kLanes>
struct LaneGroup {
  const Doubles<kLanes>* weights;
  const double* importance;
  int64_t count;
};

// kMinimum: groups have a minimum, for integers alone. kWeighted: there are importances.
template <int kLanes, typename Rounding, bool kMinimum, bool kWeighted>
class GroupFit {
 public:
  using Vector = Doubles<kLanes>;
  using Mask = Integers<kLanes>;
  using Grid = clikart::Grid<kLanes>;
  using Group = LaneGroup<kLanes>;
  using Nearest = typename Rounding::template At<kLanes, kMinimum>;

  // `scratch`: what Rounding::At asks for.
  CLIKART_LANES GroupFit(const GridRules& rules, const Rounding& rounding, Vector* scratch)
      : rules_(rules), rounding_(rounding), scratch_(scratch) {}

  // The least scale that can be stored and whose codes cover the group.
  CLIKART_LANES Grid Cover(const Group& group) const { return Cover(RangeOf(group)); }

  // The grid with the least squared error among that one, those that cover a range shrunk by up to a half, and what
  // least-squares fits to the codes make of each. A fit waits for the sums that it is made of, so the candidates of a
  // round, which do not wait for each other, come one after the other.
  CLIKART_LANES Grid Search(const Group& group) const {
    const Range range = RangeOf(group);
    const Totals totals = TotalsOf(group);
    Choice best = {Cover(range), {}};
    best.error = MomentsOf<false>(group, best.grid).error;
    Grid grids[kShrinks + 1];
    Choice choices[kShrinks + 1];
    for (int i = 0; i <= kShrinks; ++i) {
      grids[i] = Cover(Shrunk(range, 1 - 0.5 * i / kShrinks));
      choices[i] = best;
    }
    for (int fit = 0; fit <= kFits; ++fit) {
      for (int i = 0; i <= kShrinks; ++i) {
        if (!Any<kLanes>(grids[i].reached)) continue;
        if (fit == kFits) {
          Keep(grids[i], MomentsOf<false>(group, grids[i]).error, choices[i]);
          continue;
        }
        const Moments moments = MomentsOf<true>(group, grids[i]);
        Keep(grids[i], moments.error, choices[i]);
        FitTo(moments, totals, grids[i]);
      }
    }
    for (const Choice& choice : choices) Keep(choice.grid, choice.error, best);
    return best.grid;
  }

  CLIKART_LANES Nearest At(const Grid& grid) const { return Nearest(rounding_, grid, scratch_); }

 private:
  static constexpr int kShrinks = 16;  // of the range, down to one half
  static constexpr int kFits = 2;      // of the scale to the codes, after each

  struct Range {
    Vector low;
    Vector high;
  };
  // Sums over a group's weights w and the values v of their codes, each term times its importance.
  struct Moments {
    Vector error{};  // (w - scale * v - minimum)^2
    Vector v{};
    Vector vv{};
    Vector wv{};
  };
  struct Totals {
    Vector count{};
    Vector w{};
  };
  struct Choice {
    Grid grid;
    Vector error;
  };

  // Zero is inside unless the group has a minimum of its own.
  CLIKART_LANES static Range RangeOf(const Group& group) {
    Range range = {Vector{}, Vector{}};
    if (kMinimum && group.count > 0) range = {group.weights[0], group.weights[0]};
    for (int64_t k = 0; k < group.count; ++k) {
      range.low = Least(group.weights[k], range.low);
      range.high = Greatest(group.weights[k], range.high);
    }
    return range;
  }

  CLIKART_LANES static Range Shrunk(const Range& range, double factor) {
    const Vector center = kMinimum ? (range.low + range.high) / 2 : Vector{};
    return {center - (center - range.low) * factor, center + (range.high - center) * factor};
  }

  CLIKART_LANES void StoreScale(const Vector& wanted, Grid& grid) const {
    grid.stored = rules_.format.LeastScale<kLanes>(wanted / rules_.global_scale * rules_.slack);
    grid.reached &= grid.stored <= rules_.format.greatest;
    grid.scale = ToFloat<kLanes>(grid.stored * rules_.global_scale);
  }

  CLIKART_LANES void StoreMinimum(const Vector& wanted, Grid& grid) const {
    grid.minimum = rules_.format.GreatestMinimum<kLanes>(wanted);
    grid.reached &= grid.minimum >= -rules_.format.greatest;
  }

  CLIKART_LANES Grid Cover(const Range& range) const {
    Grid grid = {{{}, Splat<kLanes>(rules_.midpoint), {}}, {}, ~Mask{}};
    if (kMinimum) {
      StoreMinimum(range.low, grid);
      StoreScale((range.high - grid.minimum) / rules_.greatest, grid);
    } else if (rules_.zero_point) {
      StoreScale((range.high - range.low) / rules_.greatest, grid);
      const Vector code = Greatest(-range.low / grid.scale, Splat<kLanes>(rules_.least));
      grid.zero = NearestMultiple(Least(code, Splat<kLanes>(rules_.greatest)), Splat<kLanes>(1));
    } else {
      StoreScale(Greatest(range.low / rules_.least, range.high / rules_.greatest), grid);
    }
    return grid;
  }

  // Gives the grid the scale, and the minimum, with which its codes come nearest to their weights; not reached where
  // these are what it has, or all codes are alike.
  CLIKART_LANES void FitTo(const Moments& moments, const Totals& totals, Grid& grid) const {
    const Vector stored = grid.stored, minimum = grid.minimum;
    Vector covariance = moments.wv, variance = moments.vv;
    if (kMinimum) {
      covariance = moments.wv * totals.count - totals.w * moments.v;
      variance = moments.vv * totals.count - moments.v * moments.v;
    }
    const Vector scale = covariance / variance;
    grid.reached &= scale > 0;
    StoreScale(scale, grid);
    if (kMinimum) StoreMinimum((totals.w - grid.scale * moments.v) / totals.count, grid);
    grid.reached &= ~((grid.stored == stored) & (grid.minimum == minimum));
  }

  CLIKART_LANES static void Keep(const Grid& grid, const Vector& error, Choice& best) {
    const Mask better = grid.reached & (error < best.error);
    best.error = better ? error : best.error;
    best.grid.stored = better ? grid.stored : best.grid.stored;
    best.grid.scale = better ? grid.scale : best.grid.scale;
    best.grid.zero = better ? grid.zero : best.grid.zero;
    best.grid.minimum = better ? grid.minimum : best.grid.minimum;
  }

  template <bool kFitted>
  CLIKART_LANES Moments MomentsOf(const Group& group, const Grid& grid) const {
    Moments sums;
    const Nearest nearest = At(grid);
    for (int64_t k = 0; k < group.count; ++k) {
      const Vector w = group.weights[k];
      const Vector v = nearest.Value(w);
      const Vector error = w - (kMinimum ? grid.scale * v + grid.minimum : grid.scale * v);
      const double importance = kWeighted ? group.importance[k] : 1.0;
      sums.error += importance * error * error;
      if (!kFitted) continue;
      if (kMinimum) sums.v += importance * v;
      sums.vv += importance * v * v;
      sums.wv += importance * w * v;
    }
    return sums;
  }

  CLIKART_LANES static Totals TotalsOf(const Group& group) {
    Totals sums;
    for (int64_t k = 0; kMinimum && k < group.count; ++k) {
      const double importance = kWeighted ? group.importance[k] : 1.0;
      sums.count += importance;
      sums.w += importance * group.weights[k];
    }
    return sums;
  }

  const GridRules& rules_;
  const Rounding& rounding_;
  Vector* const scratch_;
};

}  // namespace clikart
