#include "quant_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace clikart::codegen::portable {
namespace {

using Table = std::array<float, 256>;

Table MakeTable(const ir::QuantScheme& scheme) {
  Table table;
  for (size_t code = 0; code < table.size(); ++code) table[code] = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
  return table;
}

const float* TableOf(const ir::QuantScheme& scheme) {
  // By codebook; integers come signed and unsigned.
  static const std::array<Table, 6> tables = {
      MakeTable({.symmetric = false}),
      MakeTable({.bits = 4, .codebook = ir::Codebook::kNf4}),
      MakeTable({.bits = 4, .codebook = ir::Codebook::kE2m1}),
      MakeTable({.codebook = ir::Codebook::kE4m3}),
      MakeTable({.codebook = ir::Codebook::kE5m2}),
      MakeTable({.symmetric = true}),
  };
  if (scheme.CodeDType() == ir::DType::kInt8) return tables.back().data();
  return tables[static_cast<size_t>(scheme.codebook)].data();
}

}  // namespace

SegmentRows RowsFrom(std::span<const QuantSegment> segments, int64_t weight_row, int64_t limit) {
  for (const QuantSegment& segment : segments) {
    if (weight_row < segment.rows) return {&segment, weight_row, std::min(limit, segment.rows - weight_row)};
    weight_row -= segment.rows;
  }
  return {};
}

ColumnOrder OrderOf(const ir::KernelSpec& spec, const QuantSegment& segment) {
  const int64_t groups = spec.scheme->GroupCount(spec.k);
  const int64_t size = spec.scheme->group_size;
  ColumnOrder order;
  order.columns.resize(static_cast<size_t>(spec.k));
  std::iota(order.columns.begin(), order.columns.end(), 0);
  order.begin.assign(static_cast<size_t>(groups) + 1, 0);
  const auto group_of = [&](int64_t column) -> int64_t {
    if (spec.act_order && segment.g_idx != nullptr) return segment.g_idx[column];
    return size == -1 ? 0 : column / size;
  };
  for (int64_t column = 0; column < spec.k; ++column) ++order.begin[static_cast<size_t>(group_of(column)) + 1];
  std::partial_sum(order.begin.begin(), order.begin.end(), order.begin.begin());
  order.natural = !spec.act_order || segment.g_idx == nullptr;
  if (order.natural) return order;
  std::vector<int64_t> next(order.begin.begin(), order.begin.end() - 1);
  for (int64_t column = 0; column < spec.k; ++column) {
    const int64_t position = next[static_cast<size_t>(group_of(column))]++;
    order.columns[static_cast<size_t>(position)] = static_cast<int32_t>(column);
  }
  return order;
}

WeightReader::WeightReader(const ir::KernelSpec& spec, const QuantSegment& segment)
    : scheme_(*spec.scheme),
      segment_(segment),
      table_{.bits = scheme_.bits,
             .is_integer = scheme_.codebook == ir::Codebook::kInteger,
             .is_signed = scheme_.CodeDType() == ir::DType::kInt8,
             .values = TableOf(scheme_)},
      row_bytes_(scheme_.bits == 8 ? spec.k : (spec.k + 1) / 2),
      groups_(scheme_.GroupCount(spec.k)),
      midpoint_(table_.is_integer && scheme_.bits == 4 ? 8.0f : 0.0f) {}

float WeightReader::Scale(int64_t row, int64_t group) const {
  const auto bytes = ir::SizeOf(scheme_.ScaleDType());
  uint32_t bits = 0;  // the value's low bytes come first
  std::memcpy(&bits, segment_.scales + (row * groups_ + group) * static_cast<int64_t>(bytes), bytes);
  const float scale = ir::DecodeScale(scheme_.scale_type, bits);
  return scheme_.HasGlobalScale() ? scale * segment_.global_scale : scale;
}

}  // namespace clikart::codegen::portable
