#include "row_int8_driver.h"

#include <algorithm>
#include <cstring>

#include "column_orders.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

constexpr int64_t kLine = 64;
// Stores of codes go so far beyond the last unit.
constexpr int64_t kCodeSlack = 32;
// Codes of a tile's rows, which stay in the second-level cache while panels pass.
constexpr int64_t kCodesOfTile = 512 << 10;
constexpr int64_t kMostRowBlocks = 13;

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes of a row as codes.
int64_t CodeBytes(const ir::KernelSpec& spec, const Schedule& schedule) {
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec);
  const int64_t groups = layout.Groups();
  if (groups == 0) return 0;
  const int64_t units =
      (groups - 1) * layout.UnitsOf(LongestGroup(spec)) + layout.UnitsOf(layout.GroupSteps(groups - 1));
  return units * UnitParts(spec, schedule) * kPartBytes;
}

// One tile under way.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::CodeLayoutOf(kernel.spec)),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels),
        panel_bytes_(layout_.PanelBytes()),
        accumulator_stride_(args.rows * kAccumulatorRow),
        orders_(kernel.spec, args) {}

  void Run() const {
    for (int64_t order = 0; order < orders_.count(); ++order) {
      if (orders_.IsNew(order)) RunOrder(order);
    }
  }

 private:
  template <typename Args>
  void Call(int entry, Args& entry_args) const {
    reinterpret_cast<void (*)(Args*)>(const_cast<void*>(kernel_.entries[entry]))(&entry_args);
  }

  std::byte* Scratch(int64_t at) const { return args_.scratch + at; }

  // The runs of panels that have lanes of that order.
  void RunOrder(int64_t order) const {
    bool quantized = false;
    for (int64_t panel = 0; panel < args_.panels;) {
      const int64_t first = panel;
      while (panel < args_.panels && orders_.Width(order, panel, args_.panels, 1) != 0) ++panel;
      if (panel == first) {
        ++panel;
        continue;
      }
      if (!quantized) Quantize(orders_.columns(order));
      quantized = true;
      Multiply(first, panel, [&](int64_t at, const std::byte* c) { Finish(order, at, c); });
    }
  }

  // All rows, their inputs in that order; null: as they come.
  void Quantize(const int32_t* columns) const {
    QuantizeArgs quantize;
    quantize.x = args_.x;
    quantize.x_stride = args_.x_stride;
    quantize.codes = Scratch(scratch_.codes_at());
    quantize.codes_stride = scratch_.codes_stride();
    quantize.scales = reinterpret_cast<float*>(Scratch(scratch_.scales_at()));
    quantize.corrections = reinterpret_cast<int32_t*>(Scratch(scratch_.corrections_at()));
    quantize.corrections_stride = scratch_.corrections_stride();
    quantize.rows = args_.rows;
    if (columns == nullptr) return Call(kQuantizeEntry, quantize);
    for (int64_t row = 0; row < args_.rows; ++row) {
      quantize.x = OrderedRow(row, columns);
      quantize.rows = 1;
      Call(kQuantizeEntry, quantize);  // the other arguments have moved on
    }
  }

  const std::byte* OrderedRow(int64_t row, const int32_t* columns) const {
    const std::byte* x = args_.x + row * args_.x_stride;
    if (kernel_.spec.x != ir::DType::kFloat32) {
      StageArgs stage;
      stage.x = x;
      stage.out = Scratch(scratch_.staged_at());
      stage.rows = 1;
      stage.count = kernel_.spec.k;
      Call(kStageEntry, stage);
      x = stage.out;
    }
    std::byte* const ordered = Scratch(scratch_.ordered_at());
    for (int64_t i = 0; i < kernel_.spec.k; ++i) {
      std::memcpy(ordered + i * int64_t{sizeof(float)}, x + columns[i] * int64_t{sizeof(float)}, sizeof(float));
    }
    return ordered;
  }

  // Panels [first, end), each given to `take` with its [row][16] sums.
  template <typename Take>
  void Multiply(int64_t first, int64_t end, const Take& take) const {
    const int64_t blocks = (args_.rows + kernel_.schedule.row_block - 1) / kernel_.schedule.row_block;
    int64_t width = WidestPanels(kernel_.schedule, RowsOfBlock(args_.rows, blocks, 0));
    for (int64_t panel = first; panel < end; panel += width) {
      while (width > end - panel) width /= 2;
      MultiplyPanels(blocks, panel, width);
      for (int64_t i = 0; i < width; ++i) take(panel + i, Accumulators() + i * accumulator_stride_);
    }
  }

  std::byte* Accumulators() const { return Scratch(scratch_.accumulators_at()); }

  void MultiplyPanels(int64_t blocks, int64_t panel, int64_t width) const {
    GroupsArgs groups;
    groups.a_stride = scratch_.codes_stride();
    groups.b_stride = panel_bytes_;
    groups.corrections_stride = scratch_.corrections_stride();
    groups.c_stride = accumulator_stride_;
    const std::byte* const weights = args_.weights + panel * panel_bytes_;
    // One block of rows streams the weights; of several the first ones wait for the panels that come next.
    const int64_t ahead = blocks == 1 ? kStreamAhead / width : width * panel_bytes_;
    int64_t row = 0;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t rows = RowsOfBlock(args_.rows, blocks, i);
      groups.a = Scratch(scratch_.codes_at() + row * groups.a_stride);
      groups.b = weights;
      groups.prefetch = weights + ahead;
      groups.corrections = Scratch(scratch_.corrections_at() + row * int64_t{sizeof(int32_t)});
      groups.c = Accumulators() + row * kAccumulatorRow;
      groups.groups = layout_.Groups();
      std::memcpy(groups.row_scales, Scratch(scratch_.scales_at() + row * int64_t{sizeof(float)}),
                  static_cast<size_t>(rows) * sizeof(float));
      Call(MicroEntry({WeightForm::kPacked, static_cast<int>(rows), static_cast<int>(width)}), groups);
      row += rows;
    }
  }

  void Finish(int64_t order, int64_t panel, const std::byte* c) const {
    std::byte* const merged = Scratch(scratch_.merged_at() + panel * accumulator_stride_);
    const std::byte* const complete = orders_.Complete(order, panel, args_.rows, c, merged);
    if (complete == nullptr) return;
    EpilogueArgs epilogue = EpilogueOf(kernel_, args_, panel, complete, nullptr);
    Call(kEpilogueEntry, epilogue);
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::CodeLayout layout_;
  const RowInt8Scratch scratch_;
  const int64_t panel_bytes_;
  const int64_t accumulator_stride_;
  const ColumnOrders orders_;
};

}  // namespace

int64_t DeepestGroup(const ir::QuantScheme& scheme) {
  // The most that a code, a zero point taken from it, can be.
  int64_t most = (int64_t{1} << scheme.bits) - 1;
  if (scheme.symmetric) most = UnsignedMidpoint(scheme);
  if (scheme.HasZeroPoint()) most = 255;
  constexpr int64_t kMostCode = 127;
  return INT32_MAX / (kMostCode * most);
}

RowInt8Scratch::RowInt8Scratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  // A line more, so that rows do not fall into the same sets of the cache.
  codes_stride_ = RoundUp(CodeBytes(spec, schedule) + kCodeSlack, kLine) + kLine;
  scales_at_ = rows * codes_stride_;
  corrections_at_ = scales_at_ + RoundUp(rows * int64_t{sizeof(float)}, kLine);
  corrections_stride_ = RoundUp(rows * int64_t{sizeof(int32_t)}, kLine);
  accumulators_at_ = corrections_at_ + ir::CodeLayoutOf(spec).Groups() * corrections_stride_;
  // A register tile has no more sums than the largest, whatever its shape.
  const int64_t sums = std::max(rows, schedule.row_block) * schedule.panel_block;
  staged_at_ = accumulators_at_ + sums * kAccumulatorRow;
  const bool ordered = spec.order != ir::InputOrder::kNatural;
  const int64_t row_bytes = ordered ? RoundUp(spec.k * int64_t{sizeof(float)}, kLine) : 0;
  ordered_at_ = staged_at_ + (spec.x == ir::DType::kFloat32 ? 0 : row_bytes);
  merged_at_ = ordered_at_ + row_bytes;
  bytes_ = merged_at_ + (ordered ? panels * rows * kAccumulatorRow : 0);
}

Schedule MakeRowInt8Schedule(const ir::KernelSpec& spec, const RegisterTile& tile) {
  Schedule schedule;
  schedule.few_rows = kDecodesAlways;
  schedule.row_block = tile.rows;
  schedule.panel_block = tile.panels;
  schedule.step = tile.depth;
  const int64_t block_bytes = std::max<int64_t>(1, tile.rows * CodeBytes(spec, schedule));
  schedule.tile_rows = std::clamp<int64_t>(kCodesOfTile / block_bytes, 2, kMostRowBlocks) * tile.rows;
  // A tile's rows are made codes once, so that many panels should share them.
  schedule.tile_panels = 128;
  return schedule;
}

void RunRowInt8(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
