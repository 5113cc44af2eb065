#include "panel_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "clikart/ir/panel_layout.h"
#include "panel_outputs.h"
#include "rounding.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

// One tile under way: what stays the same over the loops.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(StepLayout(kernel.spec, kernel.schedule)),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels),
        row_(kernel.spec),
        wide_(NeedsInt64(kernel.spec)) {}

  void Run() const {
    if (scratch_.few()) {
      RunFewRows();
    } else {
      RunManyRows();
    }
  }

 private:
  struct Rows {
    const std::byte* data;
    int64_t stride;
  };

  // Of kMicroUnroll steps, a multiple of every interleave.
  int64_t UnrolledBytes() const { return layout_.OffsetOf(0, kMicroUnroll); }
  const std::byte* Panel(int64_t panel) const { return args_.weights + panel * layout_.PanelBytes(); }

  // The tile's rows from step `first` on, as they are multiplied.
  Rows RowsFrom(int64_t first, int64_t count) const {
    if (!scratch_.staged()) {
      return {args_.x + first * static_cast<int64_t>(sizeof(float)), args_.x_stride};
    }
    std::byte* const out = args_.scratch + scratch_.rows_at();
    const int64_t step = kernel_.schedule.step;
    const int64_t begin = first * step;
    const int64_t elements = std::min(count * step, kernel_.spec.depth() - begin);
    if (kernel_.spec.access == ir::Access::kDense) {
      Stage(args_.x + begin * ElementBytes(), nullptr, out, elements);
    } else {
      // A block is a run of taps, the first and the last of which may be cut.
      const int64_t channels = kernel_.spec.k;
      const int64_t staged_bytes = static_cast<int64_t>(sizeof(float)) / step;
      for (int64_t done = 0; done < elements;) {
        const int64_t tap = (begin + done) / channels;
        const int64_t channel = (begin + done) % channels;
        const int64_t run = std::min(channels - channel, elements - done);
        Stage(args_.x + channel * ElementBytes(), args_.offsets + tap, out + done * staged_bytes, run);
        done += run;
      }
    }
    if (elements % step != 0 && kernel_.spec.product == ir::Product::kDotBf16) FillLastPairs(out, elements);
    return {out, scratch_.row_stride()};
  }

  // What stands behind an odd last element of bf16 may be no number, which a weight of zero does not undo.
  void FillLastPairs(std::byte* out, int64_t elements) const {
    for (int64_t row = 0; row < args_.rows; ++row) {
      std::memset(out + row * scratch_.row_stride() + elements * 2, 0, 2);
    }
  }

  int64_t ElementBytes() const { return static_cast<int64_t>(ir::SizeOf(kernel_.spec.x)); }

  void Stage(const std::byte* x, const int64_t* offsets, std::byte* out, int64_t count) const {
    StageArgs stage;
    stage.x = x;
    stage.x_stride = args_.x_stride;
    stage.offsets = offsets;
    stage.offsets_stride = kernel_.spec.taps * static_cast<int64_t>(sizeof(int64_t));
    stage.out = out;
    stage.out_stride = scratch_.row_stride();
    stage.rows = args_.rows;
    stage.count = count;
    Enter(kernel_, kStageEntry, stage);
  }

  // All rows fit one register tile: the weight is streamed front to back, panel after panel.
  void RunFewRows() const {
    const int rows = static_cast<int>(args_.rows);
    const Rows a = RowsFrom(0, layout_.depth);
    MicroArgs micro;
    micro.a = a.data;
    micro.a_stride = a.stride;
    micro.b_stride = layout_.PanelBytes();
    micro.prefetch_step = UnrolledBytes();
    micro.c = args_.scratch + scratch_.accumulators_at();
    micro.c_stride = rows * kAccumulatorRow;
    int64_t width = WidestPanels(kernel_.schedule, rows);
    for (int64_t panel = 0; panel < args_.panels; panel += width) {
      while (width > args_.panels - panel) width /= 2;
      SetWeights(micro, Panel(panel), layout_.depth, layout_);
      micro.prefetch = micro.b + kStreamAhead / width;
      Enter(kernel_, MicroEntry({WeightForm::kPacked, rows, static_cast<int>(width)}), micro);
      PanelOutputs(kernel_, args_, row_, {panel, width, micro.c, micro.c_stride}).Finish(0, rows);
    }
  }

  // `depth` steps from `b` on, packed as `layout` has them.
  static void SetWeights(MicroArgs& micro, const std::byte* b, int64_t depth, const ir::PanelLayout& layout) {
    micro.b = b;
    micro.depth = depth;
    micro.unrolled_end = b + layout.OffsetOf(0, depth / kMicroUnroll * kMicroUnroll);
    micro.whole_end = b + depth / layout.interleave * layout.StepBytes();
  }

  // Steps [first, first + count).
  struct DepthBlock {
    int64_t first;
    int64_t count;
  };

  // Depth blocks outside, so that a block of rows stays in the second-level cache while panels pass
  // by, and a block of a panel in the first-level cache while rows pass by.
  void RunManyRows() const {
    if (wide_) std::fill_n(SumsOf(0), args_.panels * args_.rows * ir::kPanelLanes, int64_t{0});
    DepthBlock block{0, 0};
    do {
      block.count = std::min(kernel_.schedule.depth_block, layout_.depth - block.first);
      const Rows a = RowsFrom(block.first, block.count);
      int64_t width = kernel_.schedule.panel_block;
      for (int64_t panel = 0; panel < args_.panels; panel += width) {
        while (width > args_.panels - panel) width /= 2;
        MultiplyPanels(a, panel, width, block);
      }
      block.first += block.count;
    } while (block.first < layout_.depth);
  }

  // All rows times a depth block of `width` panels, and the epilogue after the last one.
  void MultiplyPanels(const Rows& a, int64_t panel, int64_t width, const DepthBlock& block) const {
    const bool widens = scratch_.widens();
    const int64_t row_blocks = (args_.rows + kernel_.schedule.row_block - 1) / kernel_.schedule.row_block;
    const int64_t block_at = layout_.OffsetOf(0, block.first);
    const int64_t block_bytes = RoundUp(block.count, layout_.interleave) / layout_.interleave * layout_.StepBytes();
    const std::byte* const weights = Panel(panel) + block_at;
    MicroArgs micro;
    micro.a = a.data;
    micro.a_stride = a.stride;
    micro.b_stride = layout_.PanelBytes();
    if (widens) {
      micro.b_stride = block.count * kAccumulatorRow;
      for (int64_t i = 0; i < width; ++i) Widen(weights + i * layout_.PanelBytes(), block.count, i * micro.b_stride);
      SetWeights(micro, args_.scratch + scratch_.panel_at(), block.count, ir::PanelLayout{});
    } else {
      SetWeights(micro, weights, block.count, layout_);
    }
    micro.c = args_.scratch + scratch_.accumulators_at();
    if (scratch_.keeps_accumulators()) micro.c += panel * scratch_.accumulator_panel_stride();
    micro.c_stride = scratch_.accumulator_panel_stride();
    micro.resume = wide_ ? block.first % Int32Steps() > 0 : block.first > 0;
    std::byte* const c = micro.c;
    std::optional<PanelOutputs> outputs;
    const bool last = block.first + block.count == layout_.depth;
    if (last) outputs.emplace(kernel_, args_, row_, PanelSums{panel, width, c, micro.c_stride});
    // What is read next: the row blocks share the work of asking for it.
    const bool more_panels = panel + width < args_.panels;
    micro.prefetch = more_panels ? weights + width * layout_.PanelBytes() : Panel(0) + (block_at + block_bytes);
    micro.prefetch_step = UnrolledBytes() / row_blocks;
    const WeightForm form = widens ? WeightForm::kWidened : WeightForm::kPacked;
    for (int64_t i = 0, row = 0; i < row_blocks; ++i) {
      const auto rows = static_cast<int>(RowsOfBlock(args_.rows, row_blocks, i));
      Enter(kernel_, MicroEntry({form, rows, static_cast<int>(width)}), micro);
      if (last && !wide_) outputs->Finish(row, rows);
      row += rows;
      micro.a += rows * a.stride;
      micro.c += rows * kAccumulatorRow;
      micro.prefetch += block_bytes / row_blocks;
    }
    if (!wide_ || !(last || (block.first + block.count) % Int32Steps() == 0)) return;
    for (int64_t i = 0; i < width; ++i) AddWide(panel + i, c + i * micro.c_stride, last);
    if (last) outputs->Finish(0, args_.rows);
  }

  void Widen(const std::byte* panel, int64_t steps, int64_t at) const {
    WidenArgs widen;
    widen.panel = panel;
    widen.out = args_.scratch + scratch_.panel_at() + at;
    widen.steps = steps;
    Enter(kernel_, kWidenEntry, widen);
  }

  // The sums of a panel's blocks of Int32Steps() steps, where int32 does not hold the whole.
  int64_t* SumsOf(int64_t panel) const {
    return reinterpret_cast<int64_t*>(args_.scratch + scratch_.sums_at() + panel * scratch_.sums_panel_stride());
  }
  int64_t Int32Steps() const { return kInt32Block / kernel_.schedule.step; }

  // Adds the int32 sums at `c` to them; after the last ones `c` has the whole as f32.
  void AddWide(int64_t panel, std::byte* c, bool last) const {
    AddBlock(reinterpret_cast<const int32_t*>(c), args_.rows * ir::kPanelLanes, SumsOf(panel));
    if (!last) return;
    RoundSums(kernel_.spec, *args_.integer, args_.first_panel + panel, SumsOf(panel), args_.rows,
              reinterpret_cast<float*>(c));
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::PanelLayout layout_;
  const TileScratch scratch_;
  const OutputRow row_;
  const bool wide_;
};

}  // namespace

int64_t WidestPanels(const Schedule& schedule, int64_t rows) {
  int64_t panels = kMostTilePanels;
  while (panels > 1 && panels * rows > schedule.row_block * schedule.panel_block) panels /= 2;
  return panels;
}

int64_t FewestRowsOfBlock(const Schedule& schedule) {
  int64_t fewest = schedule.row_block;
  for (int64_t rows = schedule.few_rows + 1; rows <= schedule.few_rows + schedule.row_block; ++rows) {
    const int64_t blocks = (rows + schedule.row_block - 1) / schedule.row_block;
    fewest = std::min(fewest, RowsOfBlock(rows, blocks, blocks - 1));
  }
  return fewest;
}

std::vector<MicroKind> MicroKinds(const ir::KernelSpec& spec, const Schedule& schedule) {
  std::vector<MicroKind> kinds;
  const auto add = [&](WeightForm form, int64_t rows, int64_t widest) {
    for (int64_t panels = 1; panels <= widest; panels *= 2) {
      kinds.push_back({form, static_cast<int>(rows), static_cast<int>(panels)});
    }
  };
  for (int64_t rows = 1; rows <= schedule.row_block; ++rows) {
    add(WeightForm::kPacked, rows, WidestPanels(schedule, rows));
  }
  if (!Decodes(spec, schedule) || schedule.few_rows == kDecodesAlways) return kinds;
  // Panels are widened for so many rows that all their blocks are large.
  for (int64_t rows = FewestRowsOfBlock(schedule); rows <= schedule.row_block; ++rows) {
    add(WeightForm::kWidened, rows, schedule.panel_block);
  }
  return kinds;
}

void RunPanels(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
