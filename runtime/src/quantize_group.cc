#include "quantize_group.h"

#include <algorithm>

#include "quantize_scales.h"

namespace clikart {
namespace {

constexpr int kShrinks = 16;  // of the range, down to one half
constexpr int kFits = 2;      // of the scale to the codes, after each

std::optional<CodebookLevels> CodebookOf(const ir::QuantScheme& scheme) {
  if (scheme.codebook == ir::Codebook::kInteger) return std::nullopt;
  return CodebookLevels(scheme);
}

}  // namespace

GroupQuantizer::GroupQuantizer(const ir::QuantScheme& scheme, ScaleSearch search, float global_scale)
    : scheme_(scheme),
      search_(search),
      global_scale_(global_scale),
      codebook_(CodebookOf(scheme)),
      integers_(IntegerLevelsOf(scheme)) {}

// Zero is inside unless the group has a minimum of its own.
GroupQuantizer::Range GroupQuantizer::RangeOf(std::span<const float> weights) const {
  Range range;
  if (weights.empty()) return range;
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  range = {*low, *high};
  return scheme_.minimum ? range : Range{std::min(range.low, 0.0), std::max(range.high, 0.0)};
}

GroupQuantizer::Range GroupQuantizer::Shrunk(const Range& range, double factor) const {
  const double center = scheme_.minimum ? (range.low + range.high) / 2 : 0;
  return {center - (center - range.low) * factor, center + (range.high - center) * factor};
}

bool GroupQuantizer::StoreScale(double wanted, GroupGrid& grid) const {
  // What rounding took from a product with the global scale is not made up for by a whole step of the scale.
  const double slack = scheme_.HasGlobalScale() ? 1 - 0x1p-22 : 1;
  const std::optional<uint32_t> bits = LeastScale(scheme_.scale_type, wanted / global_scale_ * slack);
  if (!bits.has_value()) return false;
  grid.scale_bits = *bits;
  grid.scale = static_cast<float>(ScaleValue(scheme_.scale_type, *bits) * global_scale_);
  return true;
}

bool GroupQuantizer::StoreMinimum(double wanted, GroupGrid& grid) const {
  const std::optional<uint32_t> bits = GreatestMinimum(scheme_.scale_type, wanted);
  if (!bits.has_value()) return false;
  grid.minimum_bits = *bits;
  grid.minimum = ScaleValue(scheme_.scale_type, *bits);
  return true;
}

std::optional<GroupGrid> GroupQuantizer::Cover(const Range& range) const {
  GroupGrid grid;
  grid.zero = scheme_.Midpoint();
  double wanted;
  if (scheme_.minimum) {
    if (!StoreMinimum(range.low, grid)) return std::nullopt;
    wanted = (range.high - grid.minimum) / integers_.greatest;
  } else if (!scheme_.symmetric) {
    wanted = (range.high - range.low) / integers_.greatest;
  } else if (codebook_.has_value()) {
    wanted = std::max(range.low / codebook_->least(), range.high / codebook_->greatest());
  } else {
    wanted = std::max(range.low / (integers_.least - grid.zero), range.high / (integers_.greatest - grid.zero));
  }
  if (!StoreScale(wanted, grid)) return std::nullopt;
  if (scheme_.HasZeroPoint()) grid.zero = integers_.Nearest(-range.low / grid.scale, 0).code;
  return grid;
}

// The scale, and the minimum, with which the codes of `grid` come nearest to their weights.
std::optional<GroupGrid> GroupQuantizer::FitTo(const Moments& moments, const GroupGrid& grid) const {
  GroupGrid fitted = grid;
  double covariance = moments.wv, variance = moments.vv;
  if (scheme_.minimum) {
    covariance = moments.wv * moments.count - moments.w * moments.v;
    variance = moments.vv * moments.count - moments.v * moments.v;
  }
  const double scale = covariance / variance;
  if (!(scale > 0) || !StoreScale(scale, fitted)) return std::nullopt;  // all codes alike: nothing to fit
  if (scheme_.minimum && !StoreMinimum((moments.w - fitted.scale * moments.v) / moments.count, fitted)) {
    return std::nullopt;
  }
  const bool same = fitted.scale_bits == grid.scale_bits && fitted.minimum_bits == grid.minimum_bits;
  return same ? std::nullopt : std::optional(fitted);
}

std::optional<GroupGrid> GroupQuantizer::Fit(const GroupWeights& weights) const {
  const Range range = RangeOf(weights.values);
  std::optional<GroupGrid> best = Cover(range);
  if (!best.has_value() || search_ == ScaleSearch::kMinMax) return best;
  double least_error = MomentsOf(weights, *best).error;
  for (int i = 0; i <= kShrinks; ++i) {
    std::optional<GroupGrid> grid = Cover(Shrunk(range, 1 - 0.5 * i / kShrinks));
    for (int fit = 0; grid.has_value() && fit <= kFits; ++fit) {
      const Moments moments = MomentsOf(weights, *grid);
      if (moments.error < least_error) {
        least_error = moments.error;
        best = grid;
      }
      grid = FitTo(moments, *grid);
    }
  }
  return best;
}

void GroupQuantizer::Encode(std::span<const float> weights, const GroupGrid& grid, uint8_t* codes) const {
  for (const float weight : weights) *codes++ = Nearest(weight, grid).code;
}

// A quotient of floats in double never rounds onto a midpoint between two levels, so ties are told exactly.
Level GroupQuantizer::Nearest(float weight, const GroupGrid& grid) const {
  const double value = (weight - grid.minimum) / grid.scale;
  return codebook_.has_value() ? codebook_->Nearest(value) : integers_.Nearest(value, grid.zero);
}

GroupQuantizer::Moments GroupQuantizer::MomentsOf(const GroupWeights& weights, const GroupGrid& grid) const {
  Moments sums;
  for (size_t i = 0; i < weights.values.size(); ++i) {
    const double w = weights.values[i];
    const double v = Nearest(weights.values[i], grid).value;
    const double importance = weights.importance.empty() ? 1.0 : weights.importance[i];
    const double error = w - (grid.scale * v + grid.minimum);
    sums.error += importance * error * error;
    sums.count += importance;
    sums.v += importance * v;
    sums.vv += importance * v * v;
    sums.w += importance * w;
    sums.wv += importance * w * v;
  }
  return sums;
}

float GlobalScaleFor(const ir::QuantScheme& scheme, float peak) {
  const double wanted = peak / CodebookLevels(scheme).greatest() / GreatestScale(scheme.scale_type);
  return ScaleValue(ir::ScaleType::kFloat32, *LeastScale(ir::ScaleType::kFloat32, std::max(wanted, 0x1p-117)));
}

}  // namespace clikart
