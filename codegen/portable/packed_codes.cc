#include "packed_codes.h"

#include <array>
#include <cstring>
#include <map>

namespace clikart::codegen::portable {
namespace {

using Table = std::array<float, 256>;

Table MakeTable(const ir::CodeLayout& layout) {
  Table table;
  for (size_t byte = 0; byte < table.size(); ++byte) {
    const auto code = static_cast<uint8_t>(layout.turned ? byte ^ 0x80 : byte);
    table[byte] = ir::DecodeCode(layout.scheme, code);
  }
  return table;
}

// By what makes tables differ; made once.
const float* TableOf(const ir::CodeLayout& layout) {
  const ir::Decoding& decoding = ir::DecodingOf(layout.scheme);
  static std::map<std::pair<const ir::Decoding*, bool>, Table>* const tables = [] {
    auto* all = new std::map<std::pair<const ir::Decoding*, bool>, Table>;
    for (const ir::Codebook codebook : ir::kCodebooks) {
      for (const int bits : {2, 4, 8}) {
        for (const bool symmetric : {true, false}) {
          for (const bool turned : {true, false}) {
            ir::CodeLayout made;
            made.scheme = {.bits = bits, .symmetric = symmetric, .codebook = codebook};
            made.turned = turned;
            if (made.scheme.Validate().ok()) all->try_emplace({&ir::DecodingOf(made.scheme), turned}, MakeTable(made));
          }
        }
      }
    }
    return all;
  }();
  return tables->at({&decoding, layout.turned}).data();
}

float LoadScale(ir::ScaleType type, int64_t bytes, const std::byte* from) {
  uint32_t bits = 0;  // the value's low bytes come first
  std::memcpy(&bits, from, static_cast<size_t>(bytes));
  return ir::DecodeScale(type, bits);
}

}  // namespace

std::vector<OrderedRows> OrdersOf(const ir::KernelSpec& spec, const CodeArgs& codes) {
  if (spec.order == ir::InputOrder::kNatural) return {{nullptr, 0, spec.n}};
  std::vector<OrderedRows> orders;
  int64_t begin = 0;
  for (const ColumnOrder& order : codes.orders) {
    orders.push_back({order.columns, begin, begin + order.rows});
    begin += order.rows;
  }
  return orders;
}

PackedGroup::PackedGroup(const ir::CodeLayout& layout, const CodeArgs& codes, int64_t panel, const std::byte* at,
                         int64_t group)
    : layout_(layout), values_(TableOf(layout)), at_(at + layout.GroupAt(group)), steps_(layout.GroupSteps(group)) {
  const ir::QuantScheme& scheme = layout.scheme;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    scales_[lane] = LoadScale(scheme.scale_type, layout.ScaleBytes(), at_ + layout.ScaleAt(lane));
    if (scheme.HasGlobalScale()) scales_[lane] *= codes.lane_scales[panel * kLanes + lane];
    if (scheme.minimum) {
      minimums_[lane] = LoadScale(scheme.scale_type, layout.ScaleBytes(), at_ + layout.MinimumAt(lane));
    }
    if (scheme.HasZeroPoint()) zero_points_[lane] = static_cast<float>(at_[layout.ZeroPointAt(lane)]);
  }
}

void PackedGroup::Decode(int64_t first, int64_t count, float* to) const {
  const unsigned mask = (1u << layout_.scheme.bits) - 1;
  for (int64_t step = first; step < first + count; ++step, to += kLanes) {
    const int shift = layout_.CodeShift(step);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto byte = static_cast<unsigned>(at_[layout_.CodeAt(lane, step)]);
      to[lane] = values_[byte >> shift & mask] - zero_points_[lane];
    }
  }
}

}  // namespace clikart::codegen::portable
