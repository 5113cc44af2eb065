#include "depthwise_driver.h"

#include <algorithm>
#include <cstring>

#include "clikart/ir/panel_layout.h"
#include "rounding.h"

namespace clikart::codegen {
namespace {

// One tile under way.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        scratch_(kernel.spec, args.panels),
        panel_bytes_(ir::LayoutOf(kernel.spec).PanelBytes()),
        first_column_(args.first_panel * ir::kPanelLanes),
        columns_(std::min(args.panels * ir::kPanelLanes, kernel.spec.n - first_column_)),
        zeros_(args.scratch + scratch_.zeros_at()),
        taps_(reinterpret_cast<const std::byte**>(args.scratch + scratch_.taps_at())),
        c_(args.scratch + scratch_.accumulators_at()) {}

  void Run() const {
    std::memset(args_.scratch + scratch_.zeros_at(), 0, static_cast<size_t>(scratch_.zero_bytes()));
    for (int64_t row = 0; row < args_.rows; row += kDepthwiseRows) {
      RunRows(row, std::min<int64_t>(kDepthwiseRows, args_.rows - row));
    }
  }

 private:
  int64_t ElementBytes() const { return static_cast<int64_t>(ir::SizeOf(kernel_.spec.x)); }

  // One register tile's rows: its panels one after the other, so that x is read forwards.
  void RunRows(int64_t first, int64_t rows) const {
    FindTaps(first, rows);
    Multiply();
    EpilogueArgs epilogue;
    epilogue.c = c_;
    epilogue.c_stride = scratch_.accumulator_stride();
    if (args_.bias != nullptr) epilogue.bias = args_.bias + first_column_;
    epilogue.y = args_.y + first * args_.y_stride + first_column_ * static_cast<int64_t>(ir::SizeOf(kernel_.spec.y));
    epilogue.y_stride = args_.y_stride;
    epilogue.rows = rows;
    epilogue.columns = columns_;
    Enter(kernel_, kEpilogueEntry, epilogue);
  }

  // Fills the table of addresses. Rows that the register tile has beyond `rows` repeat the last one.
  void FindTaps(int64_t first, int64_t rows) const {
    const std::byte* const x = args_.x + first_column_ * ElementBytes();
    const std::byte** to = taps_;
    if (kernel_.spec.access == ir::Access::kDense) {
      for (int64_t row = 0; row < kDepthwiseRows; ++row) {
        *to++ = x + (first + std::min(row, rows - 1)) * args_.x_stride;
      }
      return;
    }
    const int64_t taps = kernel_.spec.taps;
    const int64_t* offsets[kDepthwiseRows];
    for (int64_t row = 0; row < kDepthwiseRows; ++row) {
      offsets[row] = args_.offsets + (first + std::min(row, rows - 1)) * taps;
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (const int64_t* const row : offsets) *to++ = row[tap] == kZeroTap ? zeros_ : x + row[tap];
    }
  }

  void Multiply() const {
    const int64_t whole = columns_ / ir::kPanelLanes;
    const int64_t paired = kernel_.entries[kDepthwisePairEntry] == nullptr ? 0 : whole / 2 * 2;
    MultiplyRun(kDepthwisePairEntry, 0, paired);
    MultiplyRun(kDepthwiseEntry, paired, whole);
    if (columns_ % ir::kPanelLanes != 0) MultiplyRun(kDepthwiseTailEntry, whole, whole + 1);
  }

  // Panels [first, end) of the tile.
  void MultiplyRun(int entry, int64_t first, int64_t end) const {
    if (first == end) return;
    DepthwiseArgs args;
    args.taps = taps_;
    args.end = taps_ + kernel_.spec.taps * kDepthwiseRows;
    args.first_channel = first * ir::kPanelLanes * ElementBytes();
    args.channel_end = end * ir::kPanelLanes * ElementBytes();
    args.weights = args_.weights + first * panel_bytes_;
    args.weights_stride = panel_bytes_;
    args.c = c_ + first * kAccumulatorRow;
    args.c_stride = scratch_.accumulator_stride();
    Enter(kernel_, entry, args);
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const DepthwiseScratch scratch_;
  const int64_t panel_bytes_;
  const int64_t first_column_;
  const int64_t columns_;
  const std::byte* const zeros_;
  const std::byte** const taps_;
  std::byte* const c_;
};

}  // namespace

DepthwiseScratch::DepthwiseScratch(const ir::KernelSpec& spec, int64_t panels) {
  zero_bytes_ = RoundUp(panels * ir::kPanelLanes * static_cast<int64_t>(ir::SizeOf(spec.x)), kLine);
  const int64_t table = spec.taps * kDepthwiseRows * static_cast<int64_t>(sizeof(std::byte*));
  accumulators_at_ = taps_at() + RoundUp(table, kLine);
  // A line more, so that rows do not fall into the same sets of the cache.
  accumulator_stride_ = panels * kAccumulatorRow + kLine;
}

void RunDepthwise(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
