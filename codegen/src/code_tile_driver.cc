#include "code_tile_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "clikart/ir/code_layout.h"
#include "column_orders.h"
#include "group_runs.h"
#include "panel_driver.h"
#include "panel_outputs.h"
#include "rounding.h"

namespace clikart::codegen {
namespace {

constexpr int64_t kElement = 2;  // bytes of an input

// One call under way: what stays the same over the loops.
class Call {
 public:
  Call(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::CodeLayoutOf(kernel.spec)),
        panel_bytes_(layout_.PanelBytes()),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels),
        orders_(kernel.spec, args),
        row_(kernel.spec) {}

  void Run() const {
    TileConfiguration configuration = ConfigurationOf(scratch_.height());
    std::memcpy(Scratch(scratch_.configuration_at()), &configuration, sizeof configuration);
    Enter(kernel_, kTileConfigureEntry, *reinterpret_cast<TileConfiguration*>(Scratch(scratch_.configuration_at())));
    for (int64_t order = 0; order < orders_.count(); ++order) {
      if (orders_.IsNew(order)) scratch_.few() ? RunFewRows(order) : RunManyRows(order);
    }
    Enter(kernel_, kTileReleaseEntry, configuration);
  }

 private:
  struct Rows {
    const std::byte* data;  // from step `first` on
    int64_t stride;
    int64_t first;
    int64_t first_group;  // that sums of inputs are kept from
  };

  const std::byte* Panel(int64_t panel) const { return args_.weights + panel * panel_bytes_; }
  std::byte* Scratch(int64_t at) const { return args_.scratch + at; }
  float* Sums() const { return reinterpret_cast<float*>(Scratch(scratch_.sums_at())); }
  GroupLanes* Lanes() const { return reinterpret_cast<GroupLanes*>(Scratch(scratch_.lanes_at())); }
  const float* LaneScales(int64_t panel) const {
    if (args_.codes->lane_scales == nullptr) return nullptr;
    return args_.codes->lane_scales + (args_.first_panel + panel) * ir::kPanelLanes;
  }

  // The rows are staged at once, and each panel is walked front to back.
  void RunFewRows(int64_t order) const {
    const Rows rows = RowsOf(order, BlockFrom(layout_, layout_.depth(), 0));
    ForEachWidth(order, [&](int64_t panel, int64_t width) {
      int64_t first = 0;
      do {
        const DepthBlock block = BlockFrom(layout_, scratch_.block_steps(), first);
        MultiplyPanels(order, rows, panel, width, block);
        first += block.count;
      } while (first < layout_.depth());
    });
  }

  // Depth blocks outside, so that a block of rows stays in the second-level cache while panels pass by, and the pairs
  // of panels in the first-level cache while rows pass by.
  void RunManyRows(int64_t order) const {
    int64_t first = 0;
    do {
      const DepthBlock block = BlockFrom(layout_, scratch_.block_steps(), first);
      const Rows rows = RowsOf(order, block);
      ForEachWidth(order, [&](int64_t panel, int64_t width) { MultiplyPanels(order, rows, panel, width, block); });
      first += block.count;
    } while (first < layout_.depth());
  }

  template <typename Multiplies>
  void ForEachWidth(int64_t order, const Multiplies& multiplies) const {
    for (int64_t panel = 0, width; panel < args_.panels; panel += std::max<int64_t>(width, 1)) {
      width = orders_.Width(order, panel, args_.panels, kMostPanelTiles);
      if (width > 0) multiplies(panel, width);
    }
  }

  // The call's rows over a block, padded with zeros to whole tiles, and the sums of their groups.
  Rows RowsOf(int64_t order, const DepthBlock& block) const {
    Rows rows{args_.x + block.first * kElement, args_.x_stride, block.first, block.first_group()};
    if (scratch_.staged()) {
      rows.data = Scratch(scratch_.rows_at());
      rows.stride = scratch_.row_stride();
      Stage(orders_.columns(order), block);
    }
    if (layout_.scheme.minimum) SumInputs(rows, block);
    return rows;
  }

  void Stage(const int32_t* columns, const DepthBlock& block) const {
    const int64_t stride = scratch_.row_stride();
    const int64_t bytes = block.count * kElement;
    std::byte* const out = Scratch(scratch_.rows_at());
    for (int64_t row = 0; row < args_.rows; ++row) {
      const std::byte* const from = args_.x + row * args_.x_stride;
      std::byte* const to = out + row * stride;
      if (columns == nullptr) {
        std::memcpy(to, from + block.first * kElement, static_cast<size_t>(bytes));
      } else {
        for (int64_t i = 0; i < block.count; ++i) {
          std::memcpy(to + i * kElement, from + columns[block.first + i] * kElement, kElement);
        }
      }
      std::memset(to + bytes, 0, static_cast<size_t>(stride - bytes));
    }
    const int64_t missing = scratch_.padded_rows() - args_.rows;
    std::memset(out + args_.rows * stride, 0, static_cast<size_t>(missing * stride));
  }

  void SumInputs(const Rows& rows, const DepthBlock& block) const {
    for (const GroupRun& run : block.runs) {
      float* const sums = Sums() + (run.group - rows.first_group) * args_.rows;
      for (int64_t row = 0; row < args_.rows; ++row) {
        const std::byte* const from = rows.data + row * rows.stride + (run.first - block.first) * kElement;
        SumGroupsOfBf16(reinterpret_cast<const uint16_t*>(from), run, args_.rows, sums + row);
      }
    }
  }

  // All rows times a depth block of `width` panels, and the epilogue after the last one.
  void MultiplyPanels(int64_t order, const Rows& rows, int64_t panel, int64_t width, const DepthBlock& block) const {
    const int64_t at = scratch_.keeps_accumulators() ? panel * scratch_.accumulator_stride() : 0;
    std::byte* const c = Scratch(scratch_.accumulators_at() + at);
    if (block.first == 0) std::memset(c, 0, static_cast<size_t>(width * scratch_.accumulator_stride()));
    for (const GroupRun& run : block.runs) {
      for (int64_t i = 0; i < width; ++i) DecodePairs(panel, i, width, block, run);
    }
    std::optional<OrderedOutputs> outputs;
    if (block.first + block.count == layout_.depth()) {
      const PanelSums sums{panel, width, c, scratch_.accumulator_stride()};
      outputs.emplace(kernel_, args_, row_, orders_, order, sums, Scratch(scratch_.merged_at()));
    }
    for (int64_t tile = 0; tile < scratch_.row_tiles(); tile += kMostRowTiles) {
      const int64_t row = tile * scratch_.height();
      const int64_t count = std::min(kMostRowTiles * scratch_.height(), args_.rows - row);
      for (const GroupRun& run : block.runs) MultiplyRun(rows, at, tile, width, block, run);
      if (outputs.has_value()) outputs->Finish(row, count);
    }
  }

  std::byte* PairsOf(const DepthBlock& block, int64_t first) const {
    return Scratch(scratch_.pairs_at()) + (first - block.first) / kPairTileSteps * kTileBytes;
  }
  GroupLanes* LanesOf(const DepthBlock& block, int64_t group, int64_t width) const {
    return Lanes() + (group - block.first_group()) * width;
  }

  // A run of panel `i` of `width`, padded with zeros to whole tiles.
  void DecodePairs(int64_t panel, int64_t i, int64_t width, const DepthBlock& block, const GroupRun& run) const {
    WidenCodesArgs widen;
    const int64_t units = (run.first - layout_.GroupBegin(run.group)) / layout_.interleave;
    widen.header = Panel(panel + i) + layout_.GroupAt(run.group);
    widen.codes = widen.header + layout_.CodesAt() + units * layout_.UnitBytes();
    widen.groups = run.groups;
    widen.steps = run.steps;
    widen.out = PairsOf(block, run.first) + i * scratch_.pairs_stride();
    widen.lanes = LanesOf(block, run.group, width) + i;
    widen.lanes_stride = width * static_cast<int64_t>(sizeof(GroupLanes));
    widen.lane_scales = LaneScales(panel + i);
    // What is read next: what follows in the panel, or the same block of the next panels.
    widen.prefetch = scratch_.few() ? kStreamAhead / width : width * panel_bytes_;
    Enter(kernel_, kWidenEntry, widen);
    const int64_t pair_bytes = (run.steps + 1) / 2 * kTileRowBytes;
    const int64_t missing = RoundUp(pair_bytes, kTileBytes) - pair_bytes;
    // Only one group on its own may end within a tile.
    std::memset(widen.out + (run.groups - 1) * run.steps / 2 * kTileRowBytes + pair_bytes, 0,
                static_cast<size_t>(missing));
  }

  // One or two row tiles times the groups of a run.
  void MultiplyRun(const Rows& rows, int64_t at, int64_t tile, int64_t width, const DepthBlock& block,
                   const GroupRun& run) const {
    const int64_t tiles = std::min<int64_t>(kMostRowTiles, scratch_.row_tiles() - tile);
    const int64_t row = tile * scratch_.height();
    const int64_t place = at + row * kTileRowBytes;
    TileProductArgs product;
    product.a = rows.data + row * rows.stride + (run.first - rows.first) * kElement;
    product.a_stride = rows.stride;
    product.a_tile_stride = scratch_.height() * rows.stride;
    product.b = PairsOf(block, run.first);
    product.b_stride = scratch_.pairs_stride();
    product.blocks = (run.steps + kPairTileSteps - 1) / kPairTileSteps;
    product.c = Scratch(scratch_.chains_at() + place);
    product.c_stride = scratch_.accumulator_stride();
    product.c_tile_stride = scratch_.height() * kTileRowBytes;
    product.resume = run.resume;
    TileGroupArgs add;
    add.rows = std::min(tiles * scratch_.height(), args_.rows - row);
    for (int64_t i = 0; i < run.groups; ++i) {
      Enter(kernel_, TileProductEntry(static_cast<int>(tiles), static_cast<int>(width), TileAhead::kNone), product);
      product.a += product.blocks * kTileRowBytes;
      product.b += product.blocks * kTileBytes;
      if (run.partial) continue;
      const int64_t group = run.group + i;
      add.sums = Sums() + (group - rows.first_group) * args_.rows + row;
      for (int64_t panel = 0; panel < width; ++panel) {
        add.t = product.c + panel * scratch_.accumulator_stride();
        add.c = Scratch(scratch_.accumulators_at() + place + panel * scratch_.accumulator_stride());
        add.lanes = LanesOf(block, group, width) + panel;
        Enter(kernel_, kTileGroupEntry, add);
      }
    }
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::CodeLayout layout_;
  const int64_t panel_bytes_;
  const CodeTileScratch scratch_;
  const ColumnOrders orders_;
  const OutputRow row_;
};

}  // namespace

bool GroupsFillTiles(const ir::QuantScheme& scheme, int64_t depth) {
  return scheme.group_size == -1 || scheme.group_size >= depth || scheme.group_size % kPairTileSteps == 0;
}

Schedule MakeCodeTileSchedule(const ir::KernelSpec& spec) {
  Schedule schedule = MakeTileSchedule(spec);
  schedule.step = 2;
  return schedule;
}

CodeTileScratch::CodeTileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const ir::QuantScheme& scheme = *spec.scheme;
  const int64_t depth = spec.depth();
  const bool sorted = spec.order != ir::InputOrder::kNatural;
  row_tiles_ = (rows + kTileRows - 1) / kTileRows;
  const int64_t tiles = std::max<int64_t>(1, row_tiles_);
  height_ = (rows + tiles - 1) / tiles;
  few_ = row_tiles_ <= kMostRowTiles;
  block_steps_ = BlockSteps(scheme, depth, schedule.depth_block * schedule.step);
  const bool whole = padded_rows() == rows && depth % kPairTileSteps == 0;
  staged_ = !(few_ && whole && !sorted);
  const int64_t row_steps = few_ ? depth : block_steps_;
  // A line more than a block, so that rows do not fall into the same sets of the cache.
  row_stride_ = RoundUp(row_steps * kElement, kTileRowBytes) + kTileRowBytes;
  pairs_stride_ = RoundUp(block_steps_, kPairTileSteps) / kPairTileSteps * kTileBytes;
  keeps_accumulators_ = !few_ && depth > block_steps_;

  const int64_t group = scheme.group_size == -1 ? std::max<int64_t>(depth, 1) : scheme.group_size;
  // A row without inputs is a group without steps.
  const auto groups = [&](int64_t steps) { return std::max<int64_t>((steps + group - 1) / group, 1); };
  const int64_t sums_bytes = groups(row_steps) * rows * static_cast<int64_t>(sizeof(float));
  const int64_t accumulators = (keeps_accumulators_ ? panels : kMostPanelTiles) * accumulator_stride();
  sums_at_ = rows_at() + (staged_ ? padded_rows() * row_stride_ : 0);
  lanes_at_ = sums_at_ + (scheme.minimum ? RoundUp(sums_bytes, kTileRowBytes) : 0);
  pairs_at_ = lanes_at_ + groups(block_steps_) * kMostPanelTiles * static_cast<int64_t>(sizeof(GroupLanes));
  accumulators_at_ = pairs_at_ + kMostPanelTiles * pairs_stride_;
  chains_at_ = accumulators_at_ + accumulators;
  merged_at_ = chains_at_ + accumulators;
  bytes_ = merged_at_ + (sorted ? panels * accumulator_stride() : 0);
}

int64_t CodeTileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  // Few rows keep their whole depth, and are staged or not as they fill their tiles.
  int64_t bytes = CodeTileScratch(spec, schedule, rows, panels).bytes();
  for (int64_t fewer = 1; fewer <= kMostRowTiles * kTileRows && fewer < rows; ++fewer) {
    bytes = std::max(bytes, CodeTileScratch(spec, schedule, fewer, panels).bytes());
  }
  return bytes;
}

void RunCodeTiles(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Call(kernel, args).Run();
}

}  // namespace clikart::codegen
