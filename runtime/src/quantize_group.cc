#include "quantize_group.h"

#include <algorithm>
#include <cmath>

#include "quantize_scales.h"

namespace clikart {
namespace {

constexpr int kShrinks = 16;  // of the range, down to one half

std::optional<CodebookLevels> CodebookOf(const ir::QuantScheme& scheme) {
  if (scheme.codebook == ir::Codebook::kInteger) return std::nullopt;
  return CodebookLevels(scheme);
}

// The zero point of codes that store none.
int ImpliedZero(const IntegerLevels& levels) { return (levels.least + levels.greatest + 1) / 2; }

}  // namespace

GroupQuantizer::GroupQuantizer(const ir::QuantScheme& scheme, ScaleSearch search, float global_scale)
    : scheme_(scheme),
      search_(search),
      global_scale_(global_scale),
      codebook_(CodebookOf(scheme)),
      integers_(IntegerLevelsOf(scheme)) {}

GroupQuantizer::Range GroupQuantizer::RangeOf(std::span<const float> weights) {
  Range range;  // zero is always inside
  for (const double weight : weights) {
    range.low = std::min(range.low, weight);
    range.high = std::max(range.high, weight);
  }
  return range;
}

std::optional<GroupGrid> GroupQuantizer::Cover(const Range& range) const {
  GroupGrid grid;
  double wanted;
  if (!scheme_.symmetric) {
    wanted = (range.high - range.low) / integers_.greatest;
  } else if (codebook_.has_value()) {
    wanted = std::max(range.low / codebook_->least(), range.high / codebook_->greatest());
  } else {
    grid.zero = ImpliedZero(integers_);
    wanted = std::max(range.low / (integers_.least - grid.zero), range.high / (integers_.greatest - grid.zero));
  }
  // What rounding took from a product with the global scale is not made up for by a whole step of the scale.
  const double slack = scheme_.HasGlobalScale() ? 1 - 0x1p-22 : 1;
  const std::optional<uint32_t> bits = LeastScale(scheme_.scale_type, wanted / global_scale_ * slack);
  if (!bits.has_value()) return std::nullopt;
  grid.scale_bits = *bits;
  grid.scale = static_cast<float>(ir::DecodeScale(scheme_.scale_type, *bits) * global_scale_);
  if (!scheme_.symmetric) grid.zero = integers_.Nearest(-range.low / grid.scale, 0).code;
  return grid;
}

std::optional<GroupGrid> GroupQuantizer::Fit(std::span<const float> weights) const {
  const Range range = RangeOf(weights);
  std::optional<GroupGrid> best = Cover(range);
  if (!best.has_value() || search_ == ScaleSearch::kMinMax) return best;
  double least_error = SquaredError(weights, *best);
  uint32_t last_scale = best->scale_bits;
  for (int i = 1; i <= kShrinks; ++i) {
    const double factor = 1 - 0.5 * i / kShrinks;
    const std::optional<GroupGrid> grid = Cover({range.low * factor, range.high * factor});
    if (grid->scale_bits == last_scale) continue;
    last_scale = grid->scale_bits;
    const double error = SquaredError(weights, *grid);
    if (error < least_error) {
      least_error = error;
      best = grid;
    }
  }
  return best;
}

void GroupQuantizer::Encode(std::span<const float> weights, const GroupGrid& grid, uint8_t* codes) const {
  for (const float weight : weights) *codes++ = Nearest(weight, grid).code;
}

// A quotient of floats in double never rounds onto a midpoint between two levels, so ties are told exactly.
Level GroupQuantizer::Nearest(float weight, const GroupGrid& grid) const {
  const double value = weight / grid.scale;
  return codebook_.has_value() ? codebook_->Nearest(value) : integers_.Nearest(value, grid.zero);
}

double GroupQuantizer::SquaredError(std::span<const float> weights, const GroupGrid& grid) const {
  double sum = 0;
  for (const float weight : weights) {
    const double error = weight - grid.scale * Nearest(weight, grid).value;
    sum += error * error;
  }
  return sum;
}

float GlobalScaleFor(const ir::QuantScheme& scheme, float peak) {
  const double wanted = peak / CodebookLevels(scheme).greatest() / GreatestScale(scheme.scale_type);
  return ir::DecodeScale(ir::ScaleType::kFloat32, *LeastScale(ir::ScaleType::kFloat32, std::max(wanted, 0x1p-117)));
}

}  // namespace clikart
