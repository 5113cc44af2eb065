#include "quantize_rows.h"

#include <algorithm>
#include <array>
#include <variant>

#include "environment.h"

namespace clikart {
namespace {

template <int kLanes, typename Rounding, bool kMinimum, bool kWeighted>
CLIKART_LANES void QuantizeGroups(const RowRules& rules, const Rounding& rounding, const RowBlock& block) {
  auto* const weights = reinterpret_cast<Doubles<kLanes>*>(block.scratch);
  const GroupFit<kLanes, Rounding, kMinimum, kWeighted> fit(rules.grid, rounding, weights + rules.group_size);
  for (int64_t index = 0; index < rules.groups; ++index) {
    const int64_t first = index * rules.group_size;
    const int64_t count = std::min(rules.group_size, rules.depth - first);
    for (int lane = 0; lane < kLanes; ++lane) {
      const float* const row = block.weights + lane * rules.depth + first;
      for (int64_t k = 0; k < count; ++k) weights[k][lane] = row[k];
    }
    const LaneGroup<kLanes> group = {weights, kWeighted ? rules.importance.data() + first : nullptr, count};
    const Grid<kLanes> grid = rules.search == ScaleSearch::kMse ? fit.Search(group) : fit.Cover(group);
    for (int lane = 0; lane < kLanes; ++lane) {
      block.groups[lane * rules.groups + index] = {grid.stored[lane], grid.minimum[lane],
                                                   static_cast<uint8_t>(static_cast<int>(grid.zero[lane])),
                                                   grid.reached[lane] != 0};
    }
    const auto nearest = fit.At(grid);
    for (int64_t k = 0; k < count; ++k) {
      const Integers<kLanes> codes = nearest.Code(weights[k]);
      for (int lane = 0; lane < kLanes; ++lane) {
        block.codes[lane * rules.depth + first + k] = static_cast<uint8_t>(codes[lane]);
      }
    }
  }
}

// The same code for each ISA: none of its operations is one of those, like fma, that round differently.
struct Baseline {
  static constexpr int kLanes = 2;
  template <typename Rounding, bool kMinimum, bool kWeighted>
  static void Quantize(const RowRules& rules, const Rounding& rounding, const RowBlock& block) {
    QuantizeGroups<kLanes, Rounding, kMinimum, kWeighted>(rules, rounding, block);
  }
};
struct Avx2 {
  static constexpr int kLanes = 4;
  template <typename Rounding, bool kMinimum, bool kWeighted>
  __attribute__((target("avx2"))) static void Quantize(const RowRules& rules, const Rounding& rounding,
                                                       const RowBlock& block) {
    QuantizeGroups<kLanes, Rounding, kMinimum, kWeighted>(rules, rounding, block);
  }
};
struct Avx512 {
  static constexpr int kLanes = 8;
  template <typename Rounding, bool kMinimum, bool kWeighted>
  __attribute__((target("avx512f,avx512dq,avx512vl"))) static void Quantize(const RowRules& rules,
                                                                            const Rounding& rounding,
                                                                            const RowBlock& block) {
    QuantizeGroups<kLanes, Rounding, kMinimum, kWeighted>(rules, rounding, block);
  }
};

template <typename Isa, bool kMinimum, typename Rounding>
void QuantizeWith(const RowRules& rules, const Rounding& rounding, const RowBlock& block) {
  if (rules.importance.empty()) return Isa::template Quantize<Rounding, kMinimum, false>(rules, rounding, block);
  return Isa::template Quantize<Rounding, kMinimum, true>(rules, rounding, block);
}

template <typename Isa>
void QuantizeRows(const RowRules& rules, const RowBlock& block) {
  if (const auto* const table = std::get_if<TableRounding>(&rules.rounding)) {
    return QuantizeWith<Isa, false>(rules, *table, block);
  }
  if (const auto* const minifloat = std::get_if<MinifloatRounding>(&rules.rounding)) {
    return QuantizeWith<Isa, false>(rules, *minifloat, block);
  }
  const auto& integers = std::get<IntegerRounding>(rules.rounding);
  if (rules.minimum) return QuantizeWith<Isa, true>(rules, integers, block);
  return QuantizeWith<Isa, false>(rules, integers, block);
}

constexpr std::array<RowKernel, 3> kRowKernels = {{{"baseline", Baseline::kLanes, QuantizeRows<Baseline>},
                                                   {"avx2", Avx2::kLanes, QuantizeRows<Avx2>},
                                                   {"avx512", Avx512::kLanes, QuantizeRows<Avx512>}}};

}  // namespace

std::span<const RowKernel> RowKernels() {
  const codegen::Target& target = HostTarget();
  const size_t count = target.Has(codegen::Feature::kAvx512) ? 3 : target.Has(codegen::Feature::kAvx2) ? 2 : 1;
  return std::span(kRowKernels).first(count);
}

RowRules RowRulesOf(const ir::QuantScheme& scheme, ScaleSearch search, int64_t depth, std::span<const float> importance,
                    float global_scale) {
  const double midpoint = scheme.Midpoint();
  const AnyRounding rounding = RoundingOf(scheme);
  double least, greatest;
  if (const auto* const integers = std::get_if<IntegerRounding>(&rounding)) {
    least = integers->least - midpoint;
    greatest = integers->greatest - midpoint;
  } else {
    const std::vector<Level> levels = LevelsOf(scheme);
    least = levels.front().value;
    greatest = levels.back().value;
  }
  return {.grid = {.format = ScaleFormat(scheme.scale_type),
                   .global_scale = global_scale,
                   .slack = scheme.HasGlobalScale() ? 1 - 0x1p-22 : 1,
                   .zero_point = scheme.HasZeroPoint(),
                   .midpoint = midpoint,
                   .least = least,
                   .greatest = greatest},
          .rounding = rounding,
          .search = search,
          .minimum = scheme.minimum,
          .depth = depth,
          .group_size = std::max<int64_t>(scheme.group_size == -1 ? depth : scheme.group_size, 1),
          .groups = scheme.GroupCount(depth),
          .importance = {importance.begin(), importance.end()}};
}

int64_t RowRules::ScratchBytes(int rows) const {
  const auto* const table = std::get_if<TableRounding>(&rounding);
  const int64_t steps = table == nullptr ? 0 : TableRounding::kVectorsPerStep * table->steps();
  return (group_size + steps) * rows * static_cast<int64_t>(sizeof(double));
}

float GlobalScaleFor(const ir::QuantScheme& scheme, float peak) {
  const double wanted = peak / LevelsOf(scheme).back().value / ScaleFormat(scheme.scale_type).greatest;
  const Doubles<2> least = Splat<2>(std::max(wanted, 0x1p-117));
  return static_cast<float>(ScaleFormat(ir::ScaleType::kFloat32).LeastScale<2>(least)[0]);
}

}  // namespace clikart
