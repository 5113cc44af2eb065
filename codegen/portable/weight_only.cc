// Quantized weights, float inputs: numerics rule 3.
#include <algorithm>

#include "lane_ops.h"
#include "quant_rows.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

constexpr int64_t kSteps = 128;  // columns decoded at a time

// x with its columns in the segment's order: [rows, k].
std::vector<float> Reorder(const std::vector<float>& x, int64_t rows, const ColumnOrder& order) {
  const size_t k = order.columns.size();
  std::vector<float> reordered(x.size());
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    for (size_t i = 0; i < k; ++i) reordered[row * k + i] = x[row * k + static_cast<size_t>(order.columns[i])];
  }
  return reordered;
}

LaneCodes GroupLanes(const WeightReader& reader, const SegmentRows& run, int64_t group) {
  LaneCodes lanes;
  lanes.count = run.count;
  for (int64_t lane = 0; lane < run.count; ++lane) {
    lanes.rows[lane] = reader.Row(run.first + lane);
    lanes.zero_points[lane] = reader.ZeroPoint(run.first + lane, group);
  }
  return lanes;
}

// Columns [begin, end) of the order, as [step, lane].
void DecodeColumns(const LaneOps& ops, const WeightReader& reader, const SegmentRows& run, const LaneCodes& lanes,
                   const ColumnOrder& order, int64_t begin, int64_t end, float* to) {
  const int64_t rest = order.natural ? ops.decode_eights(reader.table(), lanes, begin, end, to) : begin;
  to += (rest - begin) * kLanes;
  for (int64_t lane = 0; lane < lanes.count; ++lane) {
    const float zero_point = lanes.zero_points[lane];
    reader.ForCodes(run.first + lane, order.columns.data() + rest, end - rest,
                    [&](int64_t i, float value) { to[i * kLanes + lane] = value - zero_point; });
  }
}

// The accumulators of up to kLanes weight rows: acc[row * kLanes + lane], from +0.
void ContractRun(const LaneOps& ops, const WeightReader& reader, const SegmentRows& run, const ColumnOrder& order,
                 const std::vector<float>& x, int64_t rows, float* acc) {
  const auto k = static_cast<int64_t>(order.columns.size());
  float decoded[kSteps * kLanes] = {};
  for (int64_t group = 0; group < order.groups(); ++group) {
    float t[kRowBlock * kLanes] = {};
    const LaneCodes lanes = GroupLanes(reader, run, group);
    const int64_t end = order.Begin(group + 1);
    for (int64_t i = order.Begin(group); i < end; i += kSteps) {
      const int64_t stop = std::min(i + kSteps, end);
      DecodeColumns(ops, reader, run, lanes, order, i, stop, decoded);
      ops.extend_chains(x.data() + i, k, rows, decoded, stop - i, t);
    }
    float scales[kLanes] = {};
    for (int64_t lane = 0; lane < run.count; ++lane) scales[lane] = reader.Scale(run.first + lane, group);
    ops.add_scaled(t, scales, rows, acc);
  }
}

}  // namespace

void ContractWeightOnly(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const int64_t rows = accumulators.rows();
  const std::vector<float> x = WidenRows(spec, args, first, rows);
  for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
    const QuantSegment* segment = nullptr;
    ColumnOrder order;
    std::vector<float> reordered;
    for (int64_t column = 0; column < columns.count();) {
      const int64_t weight_row = FirstWeightRow(spec, plane) + columns.begin + column;
      const SegmentRows run = RowsFrom(args.segments, weight_row, std::min(kLanes, columns.count() - column));
      if (run.segment != segment) {
        segment = run.segment;
        order = OrderOf(spec, *segment);
        reordered = spec.act_order ? Reorder(x, rows, order) : x;
      }
      float acc[kRowBlock * kLanes] = {};
      ContractRun(ops, WeightReader(spec, *segment), run, order, reordered, rows, acc);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(acc + row * kLanes, run.count, accumulators.Row(plane, row) + column);
      }
      column += run.count;
    }
  }
}

}  // namespace clikart::codegen::portable
