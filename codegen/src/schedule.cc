#include "clikart/codegen/schedule.h"

#include <algorithm>

#include "clikart/ir/panel_layout.h"
#include "code_driver.h"
#include "code_tile_driver.h"
#include "depthwise_driver.h"
#include "integer_sums.h"
#include "panel_driver.h"
#include "rounding.h"
#include "row_int8_driver.h"
#include "row_int8_tile_driver.h"
#include "tile_driver.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

constexpr int64_t kCachedRowBytes = 640 << 10;  // of a second-level cache of a megabyte

}  // namespace

TileScratch::TileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const int64_t depth = StepLayout(spec, schedule).depth;
  few_ = rows <= schedule.row_block && !NeedsInt64(spec);
  const int64_t block = few_ ? depth : std::min(depth, schedule.depth_block);
  staged_ = !(few_ && MultipliesInPlace(spec, schedule));
  widens_ = Decodes(spec, schedule) && !few_ && rows > schedule.few_rows;
  // A line more than a block, so that rows do not fall into the same sets of the cache.
  row_stride_ = RoundToLine(block * static_cast<int64_t>(sizeof(float))) + kLine;
  panel_at_ = staged_ ? rows * row_stride_ : 0;
  const int64_t widened = block * ir::kPanelLanes * static_cast<int64_t>(sizeof(float));
  accumulators_at_ = panel_at_ + (widens_ ? schedule.panel_block * widened : 0);
  keeps_accumulators_ = !few_ && depth > block;
  accumulator_panel_stride_ = rows * kAccumulatorRow;
  // A register tile has no more accumulators than the largest, whatever its shape.
  const int64_t tile = schedule.row_block * schedule.panel_block;
  sums_at_ =
      accumulators_at_ + (few_ ? tile : rows * (keeps_accumulators_ ? panels : schedule.panel_block)) * kAccumulatorRow;
  sums_panel_stride_ = 2 * accumulator_panel_stride_;
  bytes_ = sums_at_ + (NeedsInt64(spec) ? panels * sums_panel_stride_ : 0);
}

ir::PanelLayout StepLayout(const ir::KernelSpec& spec, const Schedule& schedule) {
  ir::PanelLayout layout = ir::LayoutOf(spec);
  if (schedule.step == 1) return layout;
  const auto step = static_cast<int>(schedule.step);
  layout.depth = layout.Steps() * layout.interleave / step;
  layout.interleave /= step;
  layout.dtype = layout.interleave == 1 ? ir::DType::kInt32 : ir::DType::kBFloat16;  // for the size
  return layout;
}

bool Decodes(const ir::KernelSpec& spec, const Schedule& schedule) {
  return ir::SizeOf(StepLayout(spec, schedule).dtype) != sizeof(float);
}

bool MultipliesInPlace(const ir::KernelSpec& spec, const Schedule& schedule) {
  if (spec.access != ir::Access::kDense) return false;
  if (schedule.step == 1) return spec.x == ir::DType::kFloat32;
  const bool raw = spec.x == ir::DType::kUInt8 || spec.product == ir::Product::kDotBf16;
  return !Decodes(spec, schedule) && raw && spec.k % schedule.step == 0;
}

Schedule MakeSchedule(const ir::KernelSpec& spec, const RegisterTile& tile) {
  Schedule schedule;
  if (spec.contraction == ir::Contraction::kDepthwise) {
    // Panels side by side share the table of taps, and their part of x is read in one go.
    schedule.row_block = kDepthwiseRows;
    schedule.tile_rows = 16 * kDepthwiseRows;
    schedule.tile_panels = 16;
    return schedule;
  }
  if (spec.contraction == ir::Contraction::kRowInt8) return MakeRowInt8Schedule(spec, tile);
  schedule.row_block = tile.rows;
  schedule.panel_block = tile.panels;
  schedule.step = tile.depth;
  // A block of a panel is 16 KiB (half of a 32 KiB first-level cache), one of rows 144 KiB and its
  // accumulators, which are touched once a block, twice that.
  schedule.depth_block = 256;
  // Decoding takes a few operations of a step's fmas, and units that have little else to do: with six rows it
  // takes many row blocks until a pass that writes the panel to memory is cheaper, and with many it never is.
  const int64_t decoded_rows = tile.rows >= 12 ? kDecodesAlways : 48;
  schedule.few_rows = Decodes(spec, schedule) ? decoded_rows : 0;
  if (spec.contraction == ir::Contraction::kWeightOnly) {
    // With six rows or more to a tile decoding is at most a third of a step's operations, and up to three such tiles
    // are faster than a pass that writes the panel to memory, if the second-level cache holds their rows; with four it
    // is a half.
    const int64_t block = DecodesInRegisters(*spec.scheme) ? tile.decoded_rows : 0;
    const int64_t cached = kCachedRowBytes / (std::max<int64_t>(spec.depth(), 1) * static_cast<int64_t>(sizeof(float)));
    schedule.decoded_block = block;
    schedule.few_rows = block >= 6 ? std::clamp(cached, block, 3 * block) : block;
  }
  // Codes are decoded by shifts, which take the multiplications' units on many CPUs.
  if (schedule.few_rows > 0 && spec.contraction == ir::Contraction::kInteger) schedule.few_rows = 3 * tile.rows;
  schedule.tile_rows = std::max<int64_t>(1, 132 / tile.rows) * tile.rows;
  // Panels share the staging of a tile's rows, so that twice as many gain some percent where registers take two at
  // once; such CPUs have second-level caches of a megabyte or more.
  schedule.tile_panels = 32 * tile.panels;
  // There a panel of codes should be decoded for as many rows as the same memory of accumulators allows.
  if (spec.contraction == ir::Contraction::kWeightOnly && tile.panels > 1) {
    schedule.tile_rows = 266 / tile.rows * tile.rows;
    schedule.tile_panels = 16 * tile.panels;
  }
  return schedule;
}

int64_t ScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  if (spec.contraction == ir::Contraction::kDepthwise) return DepthwiseScratch(spec, panels).bytes();
  if (spec.contraction == ir::Contraction::kRowInt8) {
    return schedule.matrix_rows > 0 ? RowInt8TileScratchBytes(spec, schedule, rows, panels)
                                    : RowInt8ScratchBytes(spec, schedule, rows, panels);
  }
  if (spec.contraction == ir::Contraction::kWeightOnly) {
    return schedule.matrix_rows > 0 ? CodeTileScratchBytes(spec, schedule, rows, panels)
                                    : CodeScratchBytes(spec, schedule, rows, panels);
  }
  if (schedule.matrix_rows > 0) return TileScratchBytes(spec, schedule, rows, panels);
  // The largest of the tiles that have no more rows: few rows keep their whole depth.
  int64_t bytes = TileScratch(spec, schedule, rows, panels).bytes();
  for (const int64_t fewer : {schedule.row_block, schedule.few_rows}) {
    if (fewer < rows) bytes = std::max(bytes, TileScratch(spec, schedule, fewer, panels).bytes());
  }
  return bytes;
}

}  // namespace clikart::codegen
