#include "code_packing.h"

#include <cstring>

namespace clikart {
namespace {

using ir::CodeLayout;
using ir::kPanelLanes;

constexpr std::byte kTopBit{0x80};

// A field's place in a header and its bytes.
struct Field {
  int64_t at, bytes;
};

Field FieldOf(const CodeLayout& layout, HeaderField field, int64_t lane) {
  switch (field) {
    case HeaderField::kScale:
      return {layout.ScaleAt(lane), layout.ScaleBytes()};
    case HeaderField::kMinimum:
      return {layout.MinimumAt(lane), layout.ScaleBytes()};
    case HeaderField::kZeroPoint:
      return {layout.ZeroPointAt(lane), 1};
  }
  return {};
}

// One code, wherever it lies.
unsigned CodeOf(const std::byte* row, int bits, int64_t k) {
  const auto byte = static_cast<unsigned>(row[k * bits / 8]);
  return byte >> (k * bits % 8) & ((1u << bits) - 1);
}

void SetCode(std::byte* row, int bits, int64_t k, unsigned code) {
  row[k * bits / 8] |= static_cast<std::byte>(code << (k * bits % 8));
}

// Inputs as they come, and a group that begins with a byte: what a lane takes of a row are whole runs of it.
bool CopiesRuns(const CodeLayout& layout, const int32_t* columns, int64_t group) {
  return columns == nullptr && layout.GroupBegin(group) * layout.scheme.bits % 8 == 0;
}

// Bytes that the codes of a lane have in a unit, and between two units of the lane.
int64_t RunBytes(const CodeLayout& layout) { return layout.UnitBytes() / kPanelLanes; }

void PackRuns(const CodeLayout& layout, const std::byte* row, int64_t group, int64_t lane, std::byte* to) {
  const int bits = layout.scheme.bits;
  const int64_t run = RunBytes(layout), codes = layout.GroupSteps(group) * bits;
  const std::byte* const from = row + layout.GroupBegin(group) * bits / 8;
  const int64_t bytes = codes / 8;
  int64_t at = 0;
  for (; at + run <= bytes; at += run) {
    std::byte* const unit = to + at * kPanelLanes + lane * run;
    if (run == 4) {
      uint32_t word;
      std::memcpy(&word, from + at, sizeof word);
      if (layout.turned) word ^= 0x80808080u;
      std::memcpy(unit, &word, sizeof word);
    } else {
      *unit = from[at];
    }
  }
  std::byte* const rest = to + at * kPanelLanes + lane * run;
  for (; at < bytes; ++at) rest[at % run] = layout.turned ? from[at] ^ kTopBit : from[at];
  // Codes that share a byte with what is no code of this group.
  if (codes % 8 != 0) rest[at % run] = from[at] & static_cast<std::byte>((1 << codes % 8) - 1);
}

void UnpackRuns(const CodeLayout& layout, const std::byte* from, int64_t group, int64_t lane, std::byte* row) {
  const int bits = layout.scheme.bits;
  const int64_t run = RunBytes(layout), bytes = (layout.GroupSteps(group) * bits + 7) / 8;
  std::byte* const to = row + layout.GroupBegin(group) * bits / 8;
  for (int64_t at = 0; at < bytes; ++at) {
    const std::byte code = from[(at / run * kPanelLanes + lane) * run + at % run];
    to[at] |= layout.turned ? code ^ kTopBit : code;
  }
}

void PackLane(const CodeLayout& layout, const CodeRows& part, int64_t row, int64_t lane, std::byte* panel) {
  const int bits = layout.scheme.bits;
  const int64_t groups = layout.Groups();
  const std::byte* const codes = part.codes + row * layout.scheme.CodeBytes(layout.depth());
  const auto copy = [&](HeaderField field, const std::byte* from, int64_t group, std::byte* to) {
    if (from == nullptr) return;
    const auto [at, bytes] = FieldOf(layout, field, lane);
    std::memcpy(to + at, from + (row * groups + group) * bytes, static_cast<size_t>(bytes));
  };
  int64_t at = 0;
  for (int64_t group = 0; group < groups; ++group) {
    std::byte* const to = panel + at;
    at += layout.GroupBytes(layout.GroupSteps(group));
    copy(HeaderField::kScale, part.scales, group, to);
    copy(HeaderField::kMinimum, part.minimums, group, to);
    copy(HeaderField::kZeroPoint, part.zero_points, group, to);
    if (CopiesRuns(layout, part.columns, group)) {
      PackRuns(layout, codes, group, lane, to + layout.CodesAt());
      continue;
    }
    for (int64_t step = 0; step < layout.GroupSteps(group); ++step) {
      const int64_t position = layout.GroupBegin(group) + step;
      const int64_t k = part.columns == nullptr ? position : part.columns[position];
      const unsigned code = CodeOf(codes, bits, k) ^ (layout.turned ? 0x80u : 0u);
      to[layout.CodeAt(lane, step)] |= static_cast<std::byte>(code << layout.CodeShift(step));
    }
  }
}

void UnpackLane(const CodeLayout& layout, const std::byte* panel, const int32_t* columns, int64_t lane,
                std::byte* row) {
  const int bits = layout.scheme.bits;
  int64_t at = 0;
  for (int64_t group = 0; group < layout.Groups(); ++group) {
    const std::byte* const from = panel + at;
    at += layout.GroupBytes(layout.GroupSteps(group));
    if (CopiesRuns(layout, columns, group)) {
      UnpackRuns(layout, from + layout.CodesAt(), group, lane, row);
      continue;
    }
    for (int64_t step = 0; step < layout.GroupSteps(group); ++step) {
      const int64_t position = layout.GroupBegin(group) + step;
      const auto byte = static_cast<unsigned>(from[layout.CodeAt(lane, step)]);
      const unsigned code = byte >> layout.CodeShift(step) & ((1u << bits) - 1);
      SetCode(row, bits, columns == nullptr ? position : columns[position], code ^ (layout.turned ? 0x80u : 0u));
    }
  }
}

}  // namespace

void PackCodePanels(const CodeLayout& layout, std::span<const CodeRows> parts, int64_t first, int64_t count,
                    std::byte* out) {
  const int64_t panel_bytes = layout.PanelBytes();
  std::memset(out, 0, static_cast<size_t>(count * panel_bytes));
  for (int64_t panel = first; panel < first + count; ++panel, out += panel_bytes) {
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      int64_t row = layout.panels.RowOf(panel, lane);
      if (row < 0) continue;
      const CodeRows* part = parts.data();
      for (; row >= part->rows; ++part) row -= part->rows;
      PackLane(layout, *part, row, lane, out);
    }
  }
}

void UnpackCodes(const CodeLayout& layout, const std::byte* packed, const int32_t* columns, int64_t first_row,
                 int64_t rows, std::byte* out) {
  const int64_t row_bytes = layout.scheme.CodeBytes(layout.depth());
  std::memset(out, 0, static_cast<size_t>(rows * row_bytes));
  for (int64_t row = first_row; row < first_row + rows; ++row, out += row_bytes) {
    const auto [panel, lane] = layout.panels.PlaceOf(row);
    UnpackLane(layout, packed + panel * layout.PanelBytes(), columns, lane, out);
  }
}

void UnpackHeaders(const CodeLayout& layout, const std::byte* packed, HeaderField field, int64_t first_row,
                   int64_t rows, std::byte* out) {
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    const auto [panel, lane] = layout.panels.PlaceOf(row);
    const auto [at, bytes] = FieldOf(layout, field, lane);
    const std::byte* group_at = packed + panel * layout.PanelBytes();
    for (int64_t group = 0; group < layout.Groups(); ++group, out += bytes) {
      std::memcpy(out, group_at + at, static_cast<size_t>(bytes));
      group_at += layout.GroupBytes(layout.GroupSteps(group));
    }
  }
}

}  // namespace clikart
