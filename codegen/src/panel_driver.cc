#include "panel_driver.h"

#include <algorithm>

#include "clikart/ir/panel_layout.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

// Bytes of weights on their way from memory while few rows stream them: about twice what a core
// receives in one memory latency. The hardware's own prefetch stops at pages and follows too close.
constexpr int64_t kStreamAhead = 8192;

// One tile under way: what stays the same over the loops.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::LayoutOf(kernel.spec)),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels) {}

  void Run() const {
    if (args_.rows <= kRowBlock) {
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

  template <typename Args>
  void Call(int entry, const Args& entry_args) const {
    reinterpret_cast<void (*)(const Args*)>(const_cast<void*>(kernel_.entries[entry]))(&entry_args);
  }

  // Of kMicroUnroll k steps, a multiple of every interleave.
  int64_t UnrolledBytes() const { return layout_.OffsetOf(0, kMicroUnroll); }
  const std::byte* Panel(int64_t panel) const { return args_.weights + panel * layout_.PanelBytes(); }

  // The tile's rows from k step `first` on, as f32.
  Rows RowsFrom(int64_t first, int64_t count) const {
    if (!scratch_.staged()) {
      return {args_.x + first * static_cast<int64_t>(sizeof(float)), args_.x_stride};
    }
    std::byte* const out = args_.scratch + scratch_.rows_at();
    if (kernel_.spec.access == ir::Access::kDense) {
      Stage(args_.x + first * ElementBytes(), nullptr, out, count);
    } else {
      // A block is a run of taps, the first and the last of which may be cut.
      const int64_t channels = kernel_.spec.k;
      for (int64_t done = 0; done < count;) {
        const int64_t tap = (first + done) / channels;
        const int64_t channel = (first + done) % channels;
        const int64_t run = std::min(channels - channel, count - done);
        Stage(args_.x + channel * ElementBytes(), args_.offsets + tap, out + done * static_cast<int64_t>(sizeof(float)),
              run);
        done += run;
      }
    }
    return {out, scratch_.row_stride()};
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
    Call(kStageEntry, stage);
  }

  // All rows fit one register tile: the weight is streamed front to back, panel after panel.
  void RunFewRows() const {
    const int rows = static_cast<int>(args_.rows);
    const Rows a = RowsFrom(0, layout_.depth);
    MicroArgs micro;
    micro.a = a.data;
    micro.a_stride = a.stride;
    micro.b_stride = layout_.PanelBytes();
    micro.depth = layout_.depth;
    micro.prefetch_step = UnrolledBytes();
    micro.c = args_.scratch + scratch_.accumulators_at();
    micro.c_stride = rows * kAccumulatorRow;
    int width = WidestPanels(rows);
    for (int64_t panel = 0; panel < args_.panels; panel += width) {
      while (width > args_.panels - panel) width /= 2;
      micro.b = Panel(panel);
      micro.prefetch = micro.b + kStreamAhead / width;
      Call(MicroEntry(WeightForm::kPacked, rows, width), micro);
      for (int64_t i = 0; i < width; ++i) Finish(panel + i, micro.c + i * micro.c_stride);
    }
  }

  // k steps [first, first + count).
  struct DepthBlock {
    int64_t first;
    int64_t count;
  };

  // Depth blocks outside, so that a block of rows stays in the second-level cache while panels pass
  // by, and a block of a panel in the first-level cache while rows pass by.
  void RunManyRows() const {
    DepthBlock block{0, 0};
    do {
      block.count = std::min(kernel_.schedule.depth_block, layout_.depth - block.first);
      const Rows a = RowsFrom(block.first, block.count);
      for (int64_t panel = 0; panel < args_.panels; ++panel) MultiplyPanel(a, panel, block);
      block.first += block.count;
    } while (block.first < layout_.depth);
  }

  // All rows times one panel's depth block, and the epilogue after the last one.
  void MultiplyPanel(const Rows& a, int64_t panel, const DepthBlock& block) const {
    const bool widens = scratch_.widens();
    const int64_t row_blocks = (args_.rows + kRowBlock - 1) / kRowBlock;
    const int64_t block_at = layout_.OffsetOf(0, block.first);
    const int64_t block_bytes =
        ir::PanelLayout{.depth = block.count, .dtype = layout_.dtype, .interleave = layout_.interleave}.PanelBytes();
    const std::byte* const weights = Panel(panel) + block_at;
    std::byte* const c = args_.scratch + scratch_.accumulators_at() + panel * scratch_.accumulator_panel_stride();
    MicroArgs micro;
    micro.a = a.data;
    micro.a_stride = a.stride;
    micro.b = widens ? Widen(weights, block.count) : weights;
    micro.depth = block.count;
    micro.c = c;
    micro.resume = block.first > 0;
    // What is read next: the row blocks share the work of asking for it.
    const bool more_panels = panel + 1 < args_.panels;
    micro.prefetch = more_panels ? weights + layout_.PanelBytes() : Panel(0) + (block_at + block_bytes);
    micro.prefetch_step = UnrolledBytes() / row_blocks;
    for (int64_t i = 0; i < row_blocks; ++i) {
      // Blocks of nearly the same size: a small last one would wait for its own fma chains.
      const int64_t rows = args_.rows / row_blocks + (i < args_.rows % row_blocks ? 1 : 0);
      const WeightForm form = widens ? WeightForm::kWidened : WeightForm::kPacked;
      Call(MicroEntry(form, static_cast<int>(rows), 1), micro);
      micro.a += rows * a.stride;
      micro.c += rows * kAccumulatorRow;
      micro.prefetch += block_bytes / row_blocks;
    }
    if (block.first + block.count == layout_.depth) Finish(panel, c);
  }

  const std::byte* Widen(const std::byte* panel, int64_t steps) const {
    WidenArgs widen;
    widen.panel = panel;
    widen.out = args_.scratch + scratch_.panel_at();
    widen.steps = steps;
    Call(kWidenEntry, widen);
    return widen.out;
  }

  void Finish(int64_t panel, const std::byte* c) const {
    const int64_t column = (args_.first_panel + panel) * layout_.OutputsPerPanel();
    EpilogueArgs epilogue;
    epilogue.c = c;
    if (args_.bias != nullptr) epilogue.bias = args_.bias + column;
    epilogue.y = args_.y + column * static_cast<int64_t>(ir::SizeOf(kernel_.spec.y));
    epilogue.y_stride = args_.y_stride;
    epilogue.rows = args_.rows;
    epilogue.columns = std::min(layout_.OutputsPerPanel(), layout_.outputs() - column);
    Call(kEpilogueEntry, epilogue);
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::PanelLayout layout_;
  const TileScratch scratch_;
};

}  // namespace

void RunPanels(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
