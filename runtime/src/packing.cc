#include "packing.h"

#include <algorithm>
#include <cstring>

#include "panel_transpose.h"

namespace clikart {
namespace {

using ir::kPanelLanes;
using ir::PanelLayout;

// Element `k` of lane `lane`, as the layout has it, with the divisor known to the compiler.
template <typename T, int64_t kInterleave>
int64_t OffsetOf(int64_t lane, int64_t k) {
  constexpr int64_t step = kPanelLanes * kInterleave;
  return (k / kInterleave * step + lane * kInterleave + k % kInterleave) * static_cast<int64_t>(sizeof(T));
}

// Element by element: `count` of each row, `stride` bytes apart, to k steps `first` and on. Lane by lane, so
// that rows are read forwards; callers keep the range short, so that the panel's part stays in L1.
template <typename T, int64_t kInterleave>
void PackScalar(const LaneRows<const std::byte>& rows, int64_t stride, int64_t first, int64_t count, std::byte* panel) {
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    const std::byte* from = rows[static_cast<size_t>(lane)];
    for (int64_t i = 0; i < count; ++i) {
      T element{};
      if (from != nullptr) std::memcpy(&element, from + i * stride, sizeof(T));
      std::memcpy(panel + OffsetOf<T, kInterleave>(lane, first + i), &element, sizeof(T));
    }
  }
}

template <typename T, int64_t kInterleave>
void UnpackScalar(const std::byte* panel, const LaneRows<std::byte>& rows, int64_t stride, int64_t first,
                  int64_t count) {
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    std::byte* to = rows[static_cast<size_t>(lane)];
    if (to == nullptr) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * stride, panel + OffsetOf<T, kInterleave>(lane, first + i), sizeof(T));
    }
  }
}

// Channels of a convolution that are moved at once: their part of a panel stays in L1.
constexpr int64_t kChannelBlock = 64;

// Each row `bytes` further on, where there is one.
template <typename Byte>
LaneRows<Byte> Advanced(LaneRows<Byte> rows, int64_t bytes) {
  for (Byte*& row : rows) row = row == nullptr ? nullptr : row + bytes;
  return rows;
}

// An element type with its interleave, and the block that moves it where a row's elements are neighbours (one
// tap). What lies side by side in a lane is then a run of the row, so a block moves units of such runs.
template <typename T, int64_t kInterleave, typename Block>
struct Mover {
  static constexpr int64_t kSize = sizeof(T);
  static constexpr int64_t kBlock = Block::kSteps * kInterleave;  // k steps
  static constexpr int64_t kBlockBytes = Block::kSteps * Block::kStepBytes;

  // All k steps of a panel, taps outermost.
  static void Pack(const LaneRows<const std::byte>& rows, int64_t taps, int64_t channels, std::byte* panel) {
    if (taps == 1) {
      const int64_t whole = channels / kBlock * kBlock;
      for (int64_t k = 0; k < whole; k += kBlock) Block::Pack(rows, k * kSize, panel + k / kBlock * kBlockBytes);
      PackScalar<T, kInterleave>(Advanced(rows, whole * kSize), kSize, whole, channels - whole, panel);
    } else {
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t begin = 0; begin < channels; begin += kChannelBlock) {
          PackScalar<T, kInterleave>(Advanced(rows, (begin * taps + tap) * kSize), taps * kSize, tap * channels + begin,
                                     std::min(kChannelBlock, channels - begin), panel);
        }
      }
    }
    // Zeros to the end of the last packed step.
    const int64_t depth = taps * channels;
    const int64_t missing = (kInterleave - depth % kInterleave) % kInterleave;
    PackScalar<T, kInterleave>(LaneRows<const std::byte>{}, 0, depth, missing, panel);
  }

  static void Unpack(const std::byte* panel, const LaneRows<std::byte>& rows, int64_t taps, int64_t channels) {
    if (taps == 1) {
      const int64_t whole = channels / kBlock * kBlock;
      for (int64_t k = 0; k < whole; k += kBlock) Block::Unpack(panel + k / kBlock * kBlockBytes, rows, k * kSize);
      return UnpackScalar<T, kInterleave>(panel, Advanced(rows, whole * kSize), kSize, whole, channels - whole);
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t begin = 0; begin < channels; begin += kChannelBlock) {
        UnpackScalar<T, kInterleave>(panel, Advanced(rows, (begin * taps + tap) * kSize), taps * kSize,
                                     tap * channels + begin, std::min(kChannelBlock, channels - begin));
      }
    }
  }
};

// Calls `use` with the mover of a layout: floats in order, or what is four bytes a lane and step.
template <typename Use>
void WithMover(const PanelLayout& layout, Use use) {
  if (ir::SizeOf(layout.dtype) == 1) return use(Mover<uint8_t, 4, Dwords>());
  if (ir::SizeOf(layout.dtype) == 4) return use(Mover<uint32_t, 1, Dwords>());
  if (layout.interleave == 2) return use(Mover<uint16_t, 2, Dwords>());
  use(Mover<uint16_t, 1, Words>());
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
  WithMover(layout, [&](auto mover) {
    for (int64_t panel = first; panel < first + count; ++panel, out += layout.PanelBytes()) {
      LaneRows<const std::byte> rows;
      for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
        const int64_t row = layout.RowOf(panel, lane);
        rows[static_cast<size_t>(lane)] = row < 0 ? nullptr : RowAddress(parts, row);
      }
      mover.Pack(rows, taps, channels, out);
    }
  });
}

void UnpackRows(const PanelLayout& layout, const std::byte* packed, int64_t taps, int64_t first_row, int64_t rows,
                std::byte* out) {
  if (rows <= 0 || taps <= 0) return;
  const int64_t size = static_cast<int64_t>(ir::SizeOf(layout.dtype));
  const int64_t channels = layout.depth / taps;
  WithMover(layout, [&](auto mover) {
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
      mover.Unpack(packed + panel * layout.PanelBytes(), places, taps, channels);
    }
  });
}

}  // namespace clikart
