#include "packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "panel_transpose.h"

namespace clikart {
namespace {

using ir::DType;
using ir::kPanelLanes;
using ir::PanelLayout;

// Where lane i's element lies in a k step, in bytes.
using Positions = std::array<int64_t, kPanelLanes>;

Positions PositionsOf(const PanelLayout& layout) {
  Positions positions;
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    positions[static_cast<size_t>(lane)] = layout.LanePosition(lane) * static_cast<int64_t>(ir::SizeOf(layout.dtype));
  }
  return positions;
}

// Element by element: rows' elements `stride` bytes apart, for k steps [begin, end). Lane by lane, so that
// rows are read forwards; callers keep the range short, so that the panel's part stays in L1.
template <typename T>
void PackScalar(const LaneRows<const std::byte>& rows, const Positions& positions, int64_t stride, int64_t begin,
                int64_t end, std::byte* panel) {
  constexpr int64_t step = kPanelLanes * static_cast<int64_t>(sizeof(T));
  for (size_t lane = 0; lane < kPanelLanes; ++lane) {
    std::byte* to = panel + positions[lane];
    const std::byte* from = rows[lane];
    for (int64_t k = begin; k < end; ++k) {
      T element{};
      if (from != nullptr) std::memcpy(&element, from + k * stride, sizeof(T));
      std::memcpy(to + k * step, &element, sizeof(T));
    }
  }
}

template <typename T>
void UnpackScalar(const std::byte* panel, const Positions& positions, const LaneRows<std::byte>& rows, int64_t stride,
                  int64_t begin, int64_t end) {
  constexpr int64_t step = kPanelLanes * static_cast<int64_t>(sizeof(T));
  for (size_t lane = 0; lane < kPanelLanes; ++lane) {
    std::byte* to = rows[lane];
    if (to == nullptr) continue;
    const std::byte* from = panel + positions[lane];
    for (int64_t k = begin; k < end; ++k) std::memcpy(to + k * stride, from + k * step, sizeof(T));
  }
}

// Channels of a convolution that are moved at once: their part of a panel stays in L1.
constexpr int64_t kChannelBlock = 64;

// An element type, and the block that moves it where a row's elements are neighbours (one tap).
template <typename T, typename Block>
struct Mover {
  static constexpr int64_t kSize = sizeof(T);

  // All k steps of a panel, taps outermost.
  static void Pack(const LaneRows<const std::byte>& rows, const Positions& positions, int64_t taps, int64_t channels,
                   std::byte* panel) {
    if (taps == 1) {
      const int64_t blocks = channels / Block::kSteps * Block::kSteps;
      for (int64_t k = 0; k < blocks; k += Block::kSteps) Block::Pack(rows, k * kSize, panel + k * Block::kStepBytes);
      return PackScalar<T>(rows, positions, kSize, blocks, channels, panel);
    }
    LaneRows<const std::byte> at = rows;
    for (int64_t tap = 0; tap < taps; ++tap, panel += channels * Block::kStepBytes) {
      for (int64_t begin = 0; begin < channels; begin += kChannelBlock) {
        PackScalar<T>(at, positions, taps * kSize, begin, std::min(channels, begin + kChannelBlock), panel);
      }
      for (const std::byte*& row : at) row = row == nullptr ? nullptr : row + kSize;
    }
  }

  static void Unpack(const std::byte* panel, const Positions& positions, const LaneRows<std::byte>& rows, int64_t taps,
                     int64_t channels) {
    if (taps == 1) {
      const int64_t blocks = channels / Block::kSteps * Block::kSteps;
      for (int64_t k = 0; k < blocks; k += Block::kSteps) Block::Unpack(panel + k * Block::kStepBytes, rows, k * kSize);
      return UnpackScalar<T>(panel, positions, rows, kSize, blocks, channels);
    }
    LaneRows<std::byte> at = rows;
    for (int64_t tap = 0; tap < taps; ++tap, panel += channels * Block::kStepBytes) {
      for (int64_t begin = 0; begin < channels; begin += kChannelBlock) {
        UnpackScalar<T>(panel, positions, at, taps * kSize, begin, std::min(channels, begin + kChannelBlock));
      }
      for (std::byte*& row : at) row = row == nullptr ? nullptr : row + kSize;
    }
  }
};

// Calls `use` with the mover of `dtype`. Panels hold floats (ir::KernelSpec).
template <typename Use>
void WithMover(DType dtype, Use use) {
  switch (dtype) {
    case DType::kBFloat16:
      return use(Mover<uint16_t, Step16<true>>());
    case DType::kFloat16:
      return use(Mover<uint16_t, Step16<false>>());
    default:
      return use(Mover<uint32_t, Plain32>());
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

}  // namespace

void PackPanels(const PanelLayout& layout, std::span<const WeightRows> parts, int64_t first, int64_t count,
                std::byte* out) {
  if (parts.empty()) return;
  const int64_t taps = parts[0].taps, channels = parts[0].channels;
  const Positions positions = PositionsOf(layout);
  WithMover(layout.dtype, [&](auto mover) {
    for (int64_t panel = first; panel < first + count; ++panel, out += layout.PanelBytes()) {
      LaneRows<const std::byte> rows;
      for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
        const int64_t row = layout.RowOf(panel, lane);
        rows[static_cast<size_t>(lane)] = row < 0 ? nullptr : RowAddress(parts, row);
      }
      mover.Pack(rows, positions, taps, channels, out);
    }
  });
}

void UnpackRows(const PanelLayout& layout, const std::byte* packed, int64_t taps, int64_t first_row, int64_t rows,
                std::byte* out) {
  if (rows <= 0 || taps <= 0) return;
  const int64_t size = static_cast<int64_t>(ir::SizeOf(layout.dtype));
  const int64_t channels = layout.depth / taps;
  const Positions positions = PositionsOf(layout);
  WithMover(layout.dtype, [&](auto mover) {
    for (int64_t panel = 0; panel < layout.Panels(); ++panel) {
      LaneRows<std::byte> places;
      bool any = false;
      for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
        const int64_t row = layout.RowOf(panel, lane);
        const bool wanted = row >= first_row && row < first_row + rows;
        places[static_cast<size_t>(lane)] = wanted ? out + (row - first_row) * layout.depth * size : nullptr;
        any |= wanted;
      }
      if (!any) continue;
      mover.Unpack(packed + panel * layout.PanelBytes(), positions, places, taps, channels);
    }
  });
}

}  // namespace clikart
