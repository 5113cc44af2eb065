// Quantized weights, inputs quantized row by row: numerics rule 6, compute="int8".
#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant_rows.h"
#include "tile.h"

namespace clikart::codegen::portable {
namespace {

// A row of x as integers: x is about scale * codes.
struct RowCodes {
  float scale = 0.0f;
  bool finite = true;  // else every output of the row is NaN
  std::vector<int32_t> codes;
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
    row.codes[static_cast<size_t>(i)] = _mm_cvtss_si32(_mm_set_ss(bounded));
  }
  return row;
}

// One output: groups ascending, each an exact integer.
float Contract(const RowCodes& x, const WeightReader& reader, int64_t weight_row, const ColumnOrder& order,
               const int32_t* weights) {
  if (!x.finite) return std::numeric_limits<float>::quiet_NaN();
  float acc = 0.0f;
  for (int64_t group = 0; group < order.groups(); ++group) {
    int64_t dot = 0;
    const int64_t end = order.begin[static_cast<size_t>(group) + 1];
    for (int64_t i = order.begin[static_cast<size_t>(group)]; i < end; ++i) {
      dot += x.codes[static_cast<size_t>(order.columns[static_cast<size_t>(i)])] * weights[i];
    }
    acc = std::fma(static_cast<float>(dot), x.scale * reader.Scale(weight_row, group), acc);
  }
  return acc;
}

// code - zero point of a weight row, in the order's sequence.
void DecodeRow(const WeightReader& reader, int64_t weight_row, const ColumnOrder& order, int32_t* to) {
  for (int64_t group = 0; group < order.groups(); ++group) {
    const int32_t zero_point = reader.ZeroPoint(weight_row, group);
    const int64_t end = order.begin[static_cast<size_t>(group) + 1];
    for (int64_t i = order.begin[static_cast<size_t>(group)]; i < end; ++i) {
      const uint8_t code = reader.Code(weight_row, order.columns[static_cast<size_t>(i)]);
      to[i] = static_cast<int32_t>(reader.Value(code, zero_point));
    }
  }
}

}  // namespace

void ContractRowInt8(const ir::KernelSpec& spec, const TileArgs& args, int64_t first, Columns columns,
                     Accumulators& accumulators) {
  const std::vector<float> x = WidenRows(spec, args, first, accumulators.rows());
  std::vector<RowCodes> rows;
  for (int64_t row = 0; row < accumulators.rows(); ++row) rows.push_back(QuantizeRow(x.data() + row * spec.k, spec.k));
  std::vector<int32_t> weights(static_cast<size_t>(spec.k));
  for (int64_t plane = 0; plane < accumulators.planes(); ++plane) {
    const QuantSegment* segment = nullptr;
    ColumnOrder order;
    for (int64_t column = 0; column < columns.count(); ++column) {
      const SegmentRows run = RowsFrom(args.segments, FirstWeightRow(spec, plane) + columns.begin + column, 1);
      if (run.segment != segment) {
        segment = run.segment;
        order = OrderOf(spec, *segment);
      }
      const WeightReader reader(spec, *segment);
      DecodeRow(reader, run.first, order, weights.data());
      for (int64_t row = 0; row < accumulators.rows(); ++row) {
        accumulators.Row(plane, row)[column] =
            Contract(rows[static_cast<size_t>(row)], reader, run.first, order, weights.data());
      }
    }
  }
}

}  // namespace clikart::codegen::portable
