#include "code_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "clikart/ir/code_layout.h"
#include "code_rows.h"
#include "column_orders.h"
#include "group_runs.h"
#include "panel_outputs.h"

namespace clikart::codegen {
namespace {

// One tile under way: what stays the same over the loops.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::CodeLayoutOf(kernel.spec)),
        panel_bytes_(layout_.PanelBytes()),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels),
        orders_(kernel.spec, args),
        row_(kernel.spec) {}

  void Run() const {
    for (int64_t order = 0; order < orders_.count(); ++order) {
      if (!orders_.IsNew(order)) continue;
      scratch_.few() ? RunFewRows(order) : RunManyRows(order);
    }
  }

 private:
  struct Rows {
    const std::byte* data;
    int64_t stride;
    const float* sums;  // [group][row], of schemes with a minimum
    int64_t sums_stride;
  };

  const std::byte* Panel(int64_t panel) const { return args_.weights + panel * panel_bytes_; }
  std::byte* Scratch(int64_t at) const { return args_.scratch + at; }
  int64_t accumulator_stride() const { return args_.rows * kAccumulatorRow; }
  const float* LaneScales(int64_t panel) const {
    if (args_.codes->lane_scales == nullptr) return nullptr;
    return args_.codes->lane_scales + (args_.first_panel + panel) * ir::kPanelLanes;
  }

  int64_t Width(int64_t order, int64_t panel, int64_t most) const {
    return orders_.Width(order, panel, args_.panels, most);
  }

  DepthBlock BlockFrom(int64_t first) const { return codegen::BlockFrom(layout_, scratch_.block_steps(), first); }

  // The tile's rows, and their sums of groups, as they are multiplied.
  Rows RowsOf(int64_t order) const {
    if (args_.prepared.data == nullptr) return {args_.x, args_.x_stride, nullptr, 0};
    const CodeRowsLayout rows(kernel_.spec, args_.prepared.count);
    const std::byte* const prepared = args_.prepared.data + order * rows.bytes();
    const auto* const sums = reinterpret_cast<const float*>(prepared + rows.sums_at());
    return {prepared + args_.prepared.first * rows.row_stride(), rows.row_stride(),
            layout_.scheme.minimum ? sums + args_.prepared.first : nullptr, args_.prepared.count};
  }

  static const float* SumsOf(const Rows& a, int64_t group, int64_t row) {
    return a.sums == nullptr ? nullptr : a.sums + group * a.sums_stride + row;
  }

  // A register kernel's arguments but for what changes from call to call.
  void Begin(CodeMicroArgs& micro, const Rows& a) const {
    micro.a_stride = a.stride;
    micro.c_stride = accumulator_stride();
    micro.sums_stride = a.sums_stride * int64_t{sizeof(float)};
  }

  // Codes are streamed front to back, panel after panel, and decoded by each block of rows.
  void RunFewRows(int64_t order) const {
    const DepthBlock all = BlockFrom(0);
    const Rows a = RowsOf(order);
    const int64_t row_blocks = DecodedBlocks(kernel_.schedule, args_.rows);
    const int64_t widest = StreamedPanels(kernel_.schedule, FirstDecodedBlock(kernel_.schedule, args_.rows));
    std::byte* const c = Scratch(scratch_.accumulators_at());
    CodeMicroArgs micro;
    Begin(micro, a);
    micro.b_stride = panel_bytes_;
    for (int64_t panel = 0, width; panel < args_.panels; panel += std::max<int64_t>(width, 1)) {
      width = Width(order, panel, widest);
      if (width == 0) continue;
      std::memset(c, 0, static_cast<size_t>(width * accumulator_stride()));
      micro.lane_scales = LaneScales(panel);
      for (int64_t i = 0, row = 0; i < row_blocks; ++i) {
        const int64_t rows = RowsOfBlock(args_.rows, row_blocks, i);
        const int entry = MicroEntry({WeightForm::kPacked, static_cast<int>(rows), static_cast<int>(width)});
        micro.c = c + row * kAccumulatorRow;
        for (const GroupRun& run : all.runs) {
          micro.a = a.data + row * a.stride + run.first * int64_t{sizeof(float)};
          micro.b = Panel(panel) + layout_.GroupAt(run.group);
          micro.groups = run.groups;
          micro.steps = run.steps;
          micro.sums = SumsOf(a, run.group, row);
          Enter(kernel_, entry, micro);
        }
        row += rows;
      }
      OrderedOutputs(kernel_, args_, row_, orders_, order, Outputs(panel, width, c), Scratch(scratch_.merged_at()))
          .Finish(0, args_.rows);
    }
  }

  // Depth blocks outside, so that a block of rows stays in the second-level cache while panels pass by, and a
  // decoded block of panels in the first-level cache while rows pass by.
  void RunManyRows(int64_t order) const {
    const Rows a = RowsOf(order);
    int64_t first = 0;
    do {
      const DepthBlock block = BlockFrom(first);
      for (int64_t panel = 0, width; panel < args_.panels; panel += std::max<int64_t>(width, 1)) {
        width = Width(order, panel, kernel_.schedule.panel_block);
        if (width > 0) MultiplyPanels(order, a, panel, width, block);
      }
      first += block.count;
    } while (first < layout_.depth());
  }

  // All rows times a depth block of `width` panels, and the epilogue after the last one.
  void MultiplyPanels(int64_t order, const Rows& a, int64_t panel, int64_t width, const DepthBlock& block) const {
    const int64_t at = scratch_.keeps_accumulators() ? panel * accumulator_stride() : 0;
    std::byte* const c = Scratch(scratch_.accumulators_at() + at);
    std::byte* const t = Scratch(scratch_.chains_at() + at);
    if (block.first == 0) std::memset(c, 0, static_cast<size_t>(width * accumulator_stride()));
    for (const GroupRun& run : block.runs) WidenPanels(panel, width, block, run);
    const int64_t row_blocks = (args_.rows + kernel_.schedule.row_block - 1) / kernel_.schedule.row_block;
    std::optional<OrderedOutputs> outputs;
    if (block.first + block.count == layout_.depth()) {
      outputs.emplace(kernel_, args_, row_, orders_, order, Outputs(panel, width, c), Scratch(scratch_.merged_at()));
    }
    CodeMicroArgs micro;
    Begin(micro, a);
    micro.b_stride = scratch_.widened_stride();
    for (int64_t i = 0, row = 0; i < row_blocks; ++i) {
      const int64_t rows = RowsOfBlock(args_.rows, row_blocks, i);
      const int entry = MicroEntry({WeightForm::kWidened, static_cast<int>(rows), static_cast<int>(width)});
      for (const GroupRun& run : block.runs) {
        const int64_t step = run.first - block.first, group = run.group - block.first_group();
        micro.a = a.data + row * a.stride + run.first * int64_t{sizeof(float)};
        micro.b = Scratch(scratch_.widened_at()) + step * kAccumulatorRow;
        micro.groups = run.groups;
        micro.steps = run.steps;
        micro.c = c + row * kAccumulatorRow;
        micro.t = t + row * kAccumulatorRow;
        micro.resume = run.resume;
        micro.partial = run.partial;
        micro.sums = SumsOf(a, run.group, row);
        micro.lanes = Lanes() + group * width;
        Enter(kernel_, entry, micro);
      }
      if (outputs.has_value()) outputs->Finish(row, rows);
      row += rows;
    }
  }

  GroupLanes* Lanes() const { return reinterpret_cast<GroupLanes*>(Scratch(scratch_.lanes_at())); }

  // Decodes a run of `width` panels to where the register kernels take it from.
  void WidenPanels(int64_t panel, int64_t width, const DepthBlock& block, const GroupRun& run) const {
    WidenCodesArgs widen;
    const int64_t units = (run.first - layout_.GroupBegin(run.group)) / layout_.interleave;
    const bool more = panel + width < args_.panels;
    for (int64_t i = 0; i < width; ++i) {
      widen.header = Panel(panel + i) + layout_.GroupAt(run.group);
      widen.codes = widen.header + layout_.CodesAt() + units * layout_.UnitBytes();
      widen.groups = run.groups;
      widen.steps = run.steps;
      widen.out =
          Scratch(scratch_.widened_at() + i * scratch_.widened_stride() + (run.first - block.first) * kAccumulatorRow);
      widen.lanes = Lanes() + (run.group - block.first_group()) * width + i;
      widen.lanes_stride = width * static_cast<int64_t>(sizeof(GroupLanes));
      widen.lane_scales = LaneScales(panel + i);
      // What is read next: the same block of the next panels.
      widen.prefetch = more ? width * panel_bytes_ : 0;
      Enter(kernel_, kWidenEntry, widen);
    }
  }

  PanelSums Outputs(int64_t panel, int64_t panels, const std::byte* c) const {
    return {panel, panels, c, accumulator_stride()};
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::CodeLayout layout_;
  const int64_t panel_bytes_;
  const CodeScratch scratch_;
  const ColumnOrders orders_;
  const OutputRow row_;
};

}  // namespace

void RunCodes(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
