#include "packing.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace clikart {
namespace {

using ir::kPanelLanes;
using ir::PanelLayout;

// Zeros stand for lanes past n. Read in blocks, so that one short run serves any depth.
constexpr int64_t kBlock = 64;  // elements of a row that are handled at once: a cache line of f32, four of them

// The elements of one k step, and where a lane's element goes inside it.
template <typename T>
using Step = std::array<T, kPanelLanes>;

// One source row for each lane; null is padding. `step` bytes lead from one k to the next inside the
// run that is being packed.
using LaneRows = std::array<const std::byte*, kPanelLanes>;

// `count` k steps: lane rows, elements `stride` bytes apart, into panel steps. `position` maps a lane
// to its place in a step.
template <typename T>
void PackRun(const LaneRows& rows, const std::array<int, kPanelLanes>& position, int64_t stride, int64_t count,
             std::byte* out) {
  constexpr int64_t step_bytes = kPanelLanes * static_cast<int64_t>(sizeof(T));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    std::byte* to = out + begin * step_bytes;
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      std::byte* cell = to + position[lane] * static_cast<int64_t>(sizeof(T));
      if (rows[lane] == nullptr) {
        for (int64_t i = 0; i < block; ++i) std::memset(cell + i * step_bytes, 0, sizeof(T));
        continue;
      }
      const std::byte* from = rows[lane] + begin * stride;
      for (int64_t i = 0; i < block; ++i) std::memcpy(cell + i * step_bytes, from + i * stride, sizeof(T));
    }
  }
}

// The place of a row among the parts.
const std::byte* RowAddress(std::span<const WeightRows> parts, int64_t row) {
  for (const WeightRows& part : parts) {
    if (row < part.rows) return part.data + row * part.row_stride;
    row -= part.rows;
  }
  return nullptr;
}

template <typename T>
void PackPanelsOf(const PanelLayout& layout, std::span<const WeightRows> parts, int64_t first, int64_t count,
                  std::byte* out) {
  const int64_t size = sizeof(T);
  const int64_t taps = parts.empty() ? 1 : parts[0].taps;
  const int64_t channels = parts.empty() ? 0 : parts[0].channels;
  std::array<int, kPanelLanes> position;
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) position[lane] = static_cast<int>(layout.LanePosition(lane));
  for (int64_t panel = first; panel < first + count; ++panel) {
    std::byte* to = out + (panel - first) * layout.PanelBytes();
    LaneRows rows;
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      const int64_t row = layout.RowOf(panel, lane);
      rows[lane] = row < 0 ? nullptr : RowAddress(parts, row);
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      PackRun<T>(rows, position, taps * size, channels, to + tap * channels * layout.StepBytes());
      for (const std::byte*& row : rows) {
        if (row != nullptr) row += size;
      }
    }
  }
}

template <typename T>
void UnpackRowsOf(const PanelLayout& layout, const std::byte* packed, int64_t taps, int64_t first_row, int64_t rows,
                  std::byte* out) {
  const int64_t size = sizeof(T);
  const int64_t channels = taps == 0 ? 0 : layout.depth / taps;
  const int64_t half = kPanelLanes / 2;
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    int64_t panel = row / kPanelLanes, lane = row % kPanelLanes;
    if (layout.gated) {
      const bool up = row >= layout.n / 2;
      const int64_t output = up ? row - layout.n / 2 : row;
      panel = output / half;
      lane = output % half + (up ? half : 0);
    }
    const std::byte* from = packed + panel * layout.PanelBytes() + layout.LanePosition(lane) * size;
    std::byte* to = out + (row - first_row) * layout.depth * size;
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        std::memcpy(to + (channel * taps + tap) * size, from + (tap * channels + channel) * layout.StepBytes(),
                    sizeof(T));
      }
    }
  }
}

}  // namespace

void PackPanels(const PanelLayout& layout, std::span<const WeightRows> parts, int64_t first, int64_t count,
                std::byte* out) {
  switch (ir::SizeOf(layout.dtype)) {
    case 1:
      return PackPanelsOf<uint8_t>(layout, parts, first, count, out);
    case 2:
      return PackPanelsOf<uint16_t>(layout, parts, first, count, out);
    default:
      return PackPanelsOf<uint32_t>(layout, parts, first, count, out);
  }
}

void UnpackRows(const PanelLayout& layout, const std::byte* packed, int64_t taps, int64_t first_row, int64_t rows,
                std::byte* out) {
  switch (ir::SizeOf(layout.dtype)) {
    case 1:
      return UnpackRowsOf<uint8_t>(layout, packed, taps, first_row, rows, out);
    case 2:
      return UnpackRowsOf<uint16_t>(layout, packed, taps, first_row, rows, out);
    default:
      return UnpackRowsOf<uint32_t>(layout, packed, taps, first_row, rows, out);
  }
}

}  // namespace clikart
