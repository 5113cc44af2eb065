// Quantized weights, inputs quantized row by row: numerics rule 6, compute="int8".
#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dot.h"
#include "packed_codes.h"
#include "store_lanes.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// A row of x as integers: x is about scale * codes.
struct RowCodes {
  float scale = 0.0f;
  bool finite = true;  // else every output of the row is NaN
  std::vector<int16_t> codes;
};

RowCodes QuantizeRow(const float* x, int64_t k) {
  RowCodes row;
  row.codes.assign(static_cast<size_t>(k), 0);
  float largest = 0.0f;
  for (int64_t i = 0; i < k; ++i) {
    if (!std::isfinite(x[i])) row.finite = false;
    largest = std::max(largest, std::fabs(x[i]));
  }
  row.scale = largest / 127.0f;
  // A scale that underflows to 0 leaves a row of zeros, as a zero row does.
  if (!row.finite || row.scale == 0.0f) return row;
  for (int64_t i = 0; i < k; ++i) {
    // Only a subnormal scale is coarse enough for a quotient beyond 127.
    const float bounded = std::clamp(x[i] / row.scale, -127.0f, 127.0f);
    row.codes[static_cast<size_t>(i)] = static_cast<int16_t>(_mm_cvtss_si32(_mm_set_ss(bounded)));
  }
  return row;
}

// One panel's group as [lane, step], for exact sums.
std::vector<int16_t> DecodeGroup(const PackedGroup& group) {
  std::vector<float> decoded(static_cast<size_t>(group.steps() * kLanes));
  group.Decode(0, group.steps(), decoded.data());
  std::vector<int16_t> lanes(decoded.size());
  for (int64_t step = 0; step < group.steps(); ++step) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<size_t>(lane * group.steps() + step)] =
          static_cast<int16_t>(decoded[static_cast<size_t>(step * kLanes + lane)]);
    }
  }
  return lanes;
}

// acc[row, lane] of one panel: groups ascending, each an exact integer; with a minimum, the row's exact sum too.
void ContractPanel(const RowBlock& block, const ir::CodeLayout& layout, int64_t panel,
                   const std::vector<RowCodes>& rows, float* acc) {
  const std::byte* const at = block.args.weights + panel * layout.PanelBytes();
  for (int64_t group = 0; group < layout.Groups(); ++group) {
    const PackedGroup packed(layout, *block.args.codes, block.args.first_panel + panel, at, group);
    const std::vector<int16_t> weights = DecodeGroup(packed);
    for (const RowCodes& row : rows) {
      const int16_t* const codes = row.codes.data() + layout.GroupBegin(group);
      const auto sum = static_cast<float>(std::accumulate(codes, codes + packed.steps(), int64_t{0}));
      for (int64_t lane = 0; lane < kLanes; ++lane, ++acc) {
        const int64_t dot = Dot(codes, weights.data() + lane * packed.steps(), packed.steps());
        *acc = std::fma(static_cast<float>(dot), row.scale * packed.scales()[lane], *acc);
        if (layout.scheme.minimum) *acc = std::fma(sum, row.scale * packed.minimums()[lane], *acc);
      }
    }
    acc -= static_cast<int64_t>(rows.size()) * kLanes;
  }
}

}  // namespace

void ContractRowInt8(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec, args.codes->group_begins);
  const int64_t rows = accumulators.rows(), width = layout.panels.OutputsPerPanel();
  const std::vector<float> x = WidenRows(spec, args, first, rows);
  std::vector<RowCodes> quantized;
  for (int64_t row = 0; row < rows; ++row) quantized.push_back(QuantizeRow(x.data() + row * spec.k, spec.k));
  for (const OrderedRows& order : OrdersOf(spec, *args.codes)) {
    std::vector<RowCodes> ordered = quantized;
    for (RowCodes& row : ordered) row.codes = Reorder(row.codes, 1, spec.k, order.columns);
    for (int64_t panel = 0; panel * width < columns.count(); ++panel) {
      const PanelLanes lanes(layout.panels, args.first_panel + panel, order.begin, order.end);
      if (lanes.empty()) continue;
      float acc[kRowBlock * kLanes] = {};
      ContractPanel(block, layout, panel, ordered, acc);
      for (int64_t row = 0; row < rows; ++row) {
        if (!quantized[static_cast<size_t>(row)].finite) {
          std::fill_n(acc + row * kLanes, kLanes, std::numeric_limits<float>::quiet_NaN());
        }
      }
      StoreLanes(lanes, acc, panel * width, accumulators);
    }
  }
}

}  // namespace clikart::codegen::portable
