// Quantized weights, inputs quantized row by row: numerics rule 6, compute="int8".
#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "dot.h"
#include "quant_rows.h"
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

// The codes in a segment's column order.
std::vector<int16_t> Reorder(const std::vector<int16_t>& codes, const ColumnOrder& order) {
  std::vector<int16_t> reordered;
  reordered.reserve(codes.size());
  for (int32_t column : order.columns) reordered.push_back(codes[static_cast<size_t>(column)]);
  return reordered;
}

// One weight row: code - zero point in the order's sequence, and the groups' scales.
struct WeightRow {
  std::vector<int16_t> values;
  std::vector<float> scales;
};

void DecodeRow(const WeightReader& reader, int64_t weight_row, const ColumnOrder& order, WeightRow& to) {
  to.values.resize(order.columns.size());
  to.scales.resize(static_cast<size_t>(order.groups()));
  for (int64_t group = 0; group < order.groups(); ++group) {
    const int64_t begin = order.Begin(group);
    const float zero_point = reader.ZeroPoint(weight_row, group);
    reader.ForCodes(weight_row, order.columns.data() + begin, order.Begin(group + 1) - begin,
                    [&](int64_t i, float value) {
                      to.values[static_cast<size_t>(begin + i)] = static_cast<int16_t>(value - zero_point);
                    });
    to.scales[static_cast<size_t>(group)] = reader.Scale(weight_row, group);
  }
}

// One output: groups ascending, each an exact integer.
float Contract(const RowCodes& x, const std::vector<int16_t>& codes, const WeightRow& weights,
               const ColumnOrder& order) {
  if (!x.finite) return std::numeric_limits<float>::quiet_NaN();
  float acc = 0.0f;
  for (int64_t group = 0; group < order.groups(); ++group) {
    const int64_t begin = order.Begin(group);
    const int64_t dot = Dot(codes.data() + begin, weights.values.data() + begin, order.Begin(group + 1) - begin);
    acc = std::fma(static_cast<float>(dot), x.scale * weights.scales[static_cast<size_t>(group)], acc);
  }
  return acc;
}

}  // namespace

void ContractRowInt8(const RowBlock& block, Accumulators& accumulators) {
  const auto& [spec, args, ops, first, columns] = block;
  const auto row_count = static_cast<size_t>(accumulators.rows());
  const std::vector<float> x = WidenRows(spec, args, first, accumulators.rows());
  std::vector<RowCodes> rows;
  for (size_t row = 0; row < row_count; ++row) {
    rows.push_back(QuantizeRow(x.data() + row * static_cast<size_t>(spec.k), spec.k));
  }
  std::vector<std::vector<int16_t>> codes(row_count);
  WeightRow weights;
  for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
    const QuantSegment* segment = nullptr;
    ColumnOrder order;
    for (int64_t column = 0; column < columns.count(); ++column) {
      const SegmentRows run = RowsFrom(args.segments, FirstWeightRow(spec, plane) + columns.begin + column, 1);
      if (run.segment != segment) {
        segment = run.segment;
        order = OrderOf(spec, *segment);
        for (size_t row = 0; row < row_count; ++row) codes[row] = Reorder(rows[row].codes, order);
      }
      DecodeRow(WeightReader(spec, *segment), run.first, order, weights);
      for (size_t row = 0; row < row_count; ++row) {
        accumulators.Row(plane, static_cast<int64_t>(row))[column] = Contract(rows[row], codes[row], weights, order);
      }
    }
  }
}

}  // namespace clikart::codegen::portable
