#include "tile_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "clikart/ir/panel_layout.h"
#include "panel_driver.h"
#include "panel_outputs.h"
#include "rounding.h"

namespace clikart::codegen {
namespace {

// One call under way: what stays the same over the loops.
class Call {
 public:
  Call(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::LayoutOf(kernel.spec)),
        regions_(kernel.spec, kernel.schedule, args.rows, args.panels),
        row_(kernel.spec),
        element_bytes_(static_cast<int64_t>(ir::SizeOf(kernel.spec.x))) {}

  void Run() const {
    TileConfiguration configuration = ConfigurationOf(regions_.height());
    std::memcpy(args_.scratch + regions_.configuration_at(), &configuration, sizeof configuration);
    Enter(kernel_, kTileConfigureEntry, *reinterpret_cast<const TileConfiguration*>(args_.scratch));
    Depth depth{0, 0};
    do {
      depth.count = std::min(regions_.depth_blocks(), regions_.blocks() - depth.first);
      const Rows rows = RowsFrom(depth);
      for (int64_t panel = 0; panel < args_.panels; panel += kMostPanelTiles) {
        MultiplyPanels(rows, panel, std::min<int64_t>(kMostPanelTiles, args_.panels - panel), depth);
      }
      depth.first += depth.count;
    } while (depth.first < regions_.blocks());
    Enter(kernel_, kTileReleaseEntry, configuration);
  }

 private:
  struct Rows {
    const std::byte* data;
    int64_t stride;
  };
  // Blocks [first, first + count).
  struct Depth {
    int64_t first;
    int64_t count;
  };

  // The call's rows from a block on, padded with zeros to whole blocks and whole row tiles.
  Rows RowsFrom(const Depth& depth) const {
    const int64_t first = depth.first * kTileRowBytes;
    if (!regions_.staged()) return {args_.x + first, args_.x_stride};
    const int64_t row_bytes = kernel_.spec.depth() * element_bytes_;
    const int64_t count = std::min(depth.count * kTileRowBytes, row_bytes - first);
    std::byte* const out = args_.scratch + regions_.rows_at();
    const int64_t stride = regions_.row_stride();
    if (args_.integer != nullptr) StageCodes(first, count, out);
    for (int64_t row = 0; row < args_.rows; ++row) {
      std::byte* const to = out + row * stride;
      if (args_.integer == nullptr) StageRow(row, first, count, to);
      std::memset(to + count, 0, static_cast<size_t>(depth.count * kTileRowBytes - count));
    }
    const int64_t missing = regions_.padded_rows() - args_.rows;
    std::memset(out + args_.rows * stride, 0, static_cast<size_t>(missing * stride));
    return {out, stride};
  }

  // Bytes [first, first + count) of all rows, as unsigned codes.
  void StageCodes(int64_t first, int64_t count, std::byte* out) const {
    StageArgs stage;
    stage.x = args_.x + first;
    stage.x_stride = args_.x_stride;
    stage.out = out;
    stage.out_stride = regions_.row_stride();
    stage.rows = args_.rows;
    stage.count = count;
    Enter(kernel_, kStageEntry, stage);
  }

  // Bytes [first, first + count) of a row, taps side by side.
  void StageRow(int64_t row, int64_t first, int64_t count, std::byte* to) const {
    if (kernel_.spec.access == ir::Access::kDense) {
      std::memcpy(to, args_.x + row * args_.x_stride + first, static_cast<size_t>(count));
      return;
    }
    const int64_t tap_bytes = kernel_.spec.k * element_bytes_;
    const int64_t* const offsets = args_.offsets + row * kernel_.spec.taps;
    for (int64_t done = 0; done < count;) {
      const int64_t tap = (first + done) / tap_bytes;
      const int64_t within = (first + done) % tap_bytes;
      const int64_t run = std::min(tap_bytes - within, count - done);
      if (offsets[tap] == kZeroTap) {
        std::memset(to + done, 0, static_cast<size_t>(run));
      } else {
        std::memcpy(to + done, args_.x + offsets[tap] + within, static_cast<size_t>(run));
      }
      done += run;
    }
  }

  const std::byte* Panel(int64_t panel) const { return args_.weights + panel * layout_.PanelBytes(); }

  // All rows times the depth of one or two panels, and the epilogue after the last block.
  void MultiplyPanels(const Rows& rows, int64_t panel, int64_t width, const Depth& depth) const {
    const bool ends = depth.first + depth.count == regions_.blocks();
    const int64_t whole = std::min(depth.count, layout_.Steps() / kTileRows - depth.first);
    const int64_t row_calls = CeilDiv(regions_.row_tiles(), kMostRowTiles);
    const TileAhead ahead = row_calls == 1 ? TileAhead::kStream : TileAhead::kShare;
    std::byte* const c = args_.scratch + regions_.accumulators_at() +
                         (regions_.keeps_accumulators() ? panel * regions_.accumulator_panel_stride() : 0);
    TileProductArgs product;
    product.a = rows.data;
    product.a_stride = rows.stride;
    product.a_tile_stride = regions_.height() * rows.stride;
    product.b = Panel(panel) + depth.first * kTileBytes;
    product.b_stride = layout_.PanelBytes();
    product.blocks = whole;
    if (whole < depth.count) product.b_tail = CopyTails(panel, width);
    product.c = c;
    product.c_stride = regions_.accumulator_panel_stride();
    product.c_tile_stride = regions_.height() * kTileRowBytes;
    product.resume = depth.first > 0;
    if (ahead == TileAhead::kStream) {
      product.prefetch = product.b + kStreamAhead / width;
      product.prefetch_step = kTileBytes;
    } else {
      // What is read next: the same blocks of the next panels, or the next ones of the first.
      const bool more = panel + width < args_.panels;
      product.prefetch =
          more ? product.b + width * layout_.PanelBytes() : Panel(0) + (depth.first + depth.count) * kTileBytes;
      product.prefetch_step = kTileBytes / row_calls / kTileRowBytes * kTileRowBytes;
    }
    std::optional<PanelOutputs> outputs;
    if (ends) outputs.emplace(kernel_, args_, row_, PanelSums{panel, width, c, product.c_stride});
    for (int64_t tile = 0; tile < regions_.row_tiles(); tile += kMostRowTiles) {
      const int64_t tiles = std::min<int64_t>(kMostRowTiles, regions_.row_tiles() - tile);
      const int64_t row = tile * regions_.height();
      const int64_t count = std::min(tiles * regions_.height(), args_.rows - row);
      Enter(kernel_, TileProductEntry(static_cast<int>(tiles), static_cast<int>(width), ahead), product);
      product.a += tiles * product.a_tile_stride;
      product.c += tiles * product.c_tile_stride;
      product.prefetch += whole * product.prefetch_step;
      if (ends) outputs->Finish(row, count);
    }
  }

  // The last steps of each panel, where they are no whole tile, and zeros behind them.
  const std::byte* CopyTails(int64_t panel, int64_t width) const {
    std::byte* const tails = args_.scratch + regions_.tails_at();
    const int64_t first = layout_.Steps() / kTileRows * kTileBytes;
    const auto count = static_cast<size_t>(layout_.PanelBytes() - first);
    for (int64_t i = 0; i < width; ++i) {
      std::byte* const tail = tails + i * kTileBytes;
      std::memcpy(tail, Panel(panel + i) + first, count);
      std::memset(tail + count, 0, kTileBytes - count);
    }
    return tails;
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::PanelLayout layout_;
  const TileRegions regions_;
  const OutputRow row_;
  const int64_t element_bytes_;
};

}  // namespace

TileRegions::TileRegions(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const int64_t row_bytes = spec.depth() * static_cast<int64_t>(ir::SizeOf(spec.x));
  row_tiles_ = CeilDiv(rows, kTileRows);
  height_ = CeilDiv(rows, std::max<int64_t>(1, row_tiles_));
  blocks_ = CeilDiv(row_bytes, kTileRowBytes);
  const bool few = row_tiles_ <= kMostRowTiles;
  const int64_t most = schedule.depth_block / kTileRows;
  depth_blocks_ = few ? blocks_ : std::min(blocks_, most);
  const bool whole = padded_rows() == rows && row_bytes % kTileRowBytes == 0;
  const bool as_it_lies = spec.access == ir::Access::kDense && spec.x != ir::DType::kInt8;
  staged_ = !(few && whole && as_it_lies);
  // A line more than a block, so that rows do not fall into the same sets of the cache.
  row_stride_ = (depth_blocks_ + 1) * kTileRowBytes;
  const int64_t panels_kept = keeps_accumulators() ? panels : kMostPanelTiles;
  bytes_ = accumulators_at() + panels_kept * accumulator_panel_stride();
}

int64_t TileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  // Few rows keep their whole depth, and an odd number of them is staged where the even one above is not.
  int64_t bytes = TileRegions(spec, schedule, rows, panels).bytes();
  for (const int64_t most : {kTileRows, 2 * kTileRows}) {
    const int64_t few = std::min(rows, most);
    for (const int64_t fewer : {few, few - 1}) {
      bytes = std::max(bytes, TileRegions(spec, schedule, fewer, panels).bytes());
    }
  }
  return bytes;
}

Schedule MakeTileSchedule(const ir::KernelSpec& spec) {
  Schedule schedule;
  schedule.matrix_rows = kTileRows;
  schedule.row_block = kMostRowTiles * kTileRows;
  schedule.panel_block = kMostPanelTiles;
  schedule.step = spec.interleave;
  // 1 KiB of a row: such a block of two panels is 32 KiB and stays in the first-level cache while rows pass, and
  // the staged rows of a call are 272 KiB in the second level.
  schedule.depth_block = 256;
  schedule.tile_rows = 8 * schedule.row_block;
  schedule.tile_panels = 32;
  return schedule;
}

void RunTiles(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Call(kernel, args).Run();
}

}  // namespace clikart::codegen
