#include "row_int8_tile_driver.h"

#include <algorithm>
#include <cstring>

#include "clikart/ir/code_layout.h"
#include "group_runs.h"
#include "panel_driver.h"
#include "rounding.h"
#include "row_int8_rows.h"

namespace clikart::codegen {
namespace {

constexpr int64_t kStep = 4;  // codes
constexpr int64_t kMostRowBlocks = 4;

// Of so many inputs of a group.
int64_t StepsOf(const ir::CodeLayout& layout, int64_t inputs) {
  return layout.UnitsOf(inputs) * layout.interleave / kStep;
}

bool AreBytes(const ir::KernelSpec& spec) { return spec.scheme->bits == 8; }

// One call under way: what stays the same over the loops.
class Call {
 public:
  Call(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        layout_(ir::CodeLayoutOf(kernel.spec)),
        bytes_(AreBytes(kernel.spec)),
        tile_steps_(TileSteps(kernel.spec)),
        panel_bytes_(layout_.PanelBytes()),
        scratch_(kernel.spec, kernel.schedule, args.rows, args.panels) {}

  void Run() const {
    auto& configuration = *reinterpret_cast<TileConfiguration*>(Scratch(scratch_.configuration_at()));
    configuration = ConfigurationOf(scratch_.height(), tile_steps_);
    Enter(kernel_, kTileConfigureEntry, configuration);
    const RowInt8Rows rows(kernel_, args_, Scratch(scratch_.merged_at()));
    rows.Run([&](const RowCodes& codes, int64_t first, int64_t end) {
      for (int64_t panel = first, width; panel < end; panel += width) {
        width = std::min<int64_t>(kMostPanelTiles, end - panel);
        MultiplyPanels(codes, panel, width, rows.OutputsOf(codes, {panel, width, Outputs(), scratch_.sums_stride()}));
      }
    });
    Enter(kernel_, kTileReleaseEntry, configuration);
  }

 private:
  std::byte* Scratch(int64_t at) const { return args_.scratch + at; }
  std::byte* Outputs() const { return Scratch(scratch_.outputs_at()); }
  int64_t UnitsBefore(const GroupRun& run) const {
    return (run.first - layout_.GroupBegin(run.group)) / layout_.interleave;
  }
  // The run's first codes of a panel.
  const std::byte* Codes(int64_t panel, const GroupRun& run) const {
    return args_.weights + panel * panel_bytes_ + layout_.GroupAt(run.group) + layout_.CodesAt() +
           UnitsBefore(run) * layout_.UnitBytes();
  }
  GroupHeader* Header(const DepthBlock& block, int64_t group, int64_t panel) const {
    auto* const headers = reinterpret_cast<GroupHeader*>(Scratch(scratch_.headers_at()));
    return headers + (group - block.first_group()) * kMostPanelTiles + panel;
  }
  std::byte* Tiles(const DepthBlock& block, int64_t group) const {
    return Scratch(scratch_.tiles_at() + (group - block.first_group()) * scratch_.group_stride());
  }

  // A depth block of the panels stays in the first-level cache while rows pass by.
  void MultiplyPanels(const RowCodes& codes, int64_t panel, int64_t width, const OrderedOutputs& outputs) const {
    std::memset(Outputs(), 0, static_cast<size_t>(width * scratch_.sums_stride()));
    for (int64_t first = 0; first < layout_.depth();) {
      const DepthBlock block = BlockFrom(layout_, scratch_.block_inputs(), first);
      for (const GroupRun& run : block.runs) {
        for (int64_t i = 0; i < width; ++i) Unpack(panel, i, width, block, run);
      }
      for (int64_t tile = 0; tile < scratch_.row_tiles(); tile += kMostRowTiles) {
        const int64_t row = tile * scratch_.height();
        const int64_t count = std::min(kMostRowTiles * scratch_.height(), args_.rows - row);
        const bool last = first + block.count == layout_.depth();
        for (const GroupRun& run : block.runs) MultiplyRun(codes, tile, panel, width, block, run);
        if (last) outputs.Finish(row, count);
      }
      first += block.count;
    }
  }

  // A run of panel `i` of `width`: headers, and tiles or what bytes lack of them.
  void Unpack(int64_t panel, int64_t i, int64_t width, const DepthBlock& block, const GroupRun& run) const {
    UnpackTilesArgs unpack;
    unpack.header = args_.weights + (panel + i) * panel_bytes_ + layout_.GroupAt(run.group);
    unpack.codes = Codes(panel + i, run);
    unpack.groups = run.groups;
    unpack.units = layout_.UnitsOf(run.steps);
    unpack.out = Tiles(block, run.group) + i * scratch_.panel_stride();
    unpack.out_stride = scratch_.group_stride();
    unpack.headers = Header(block, run.group, i);
    unpack.headers_stride = kMostPanelTiles * static_cast<int64_t>(sizeof(GroupHeader));
    // What is read next: what follows in the panel, or the same block of the next panels.
    unpack.prefetch = scratch_.row_tiles() <= kMostRowTiles ? kStreamAhead / width : width * panel_bytes_;
    Enter(kernel_, kUnpackTilesEntry, unpack);

    const int64_t steps = StepsOf(layout_, run.steps);
    const int64_t rest = steps % tile_steps_, whole = steps - rest;
    if (rest == 0) return;
    for (int64_t group = run.group; group < run.group + run.groups; ++group) {
      std::byte* const tiles = Tiles(block, group) + i * scratch_.panel_stride();
      std::byte* const last = bytes_ ? tiles : tiles + whole * kTileRowBytes;
      if (bytes_) {
        const std::byte* const codes = unpack.codes + (group - run.group) * layout_.GroupBytes(run.steps);
        std::memcpy(last, codes + whole * kTileRowBytes, static_cast<size_t>(rest * kTileRowBytes));
      }
      std::memset(last + rest * kTileRowBytes, 0, static_cast<size_t>((tile_steps_ - rest) * kTileRowBytes));
    }
  }

  // One or two row tiles times the groups of a run.
  void MultiplyRun(const RowCodes& codes, int64_t tile, int64_t panel, int64_t width, const DepthBlock& block,
                   const GroupRun& run) const {
    const int64_t tiles = std::min<int64_t>(kMostRowTiles, scratch_.row_tiles() - tile);
    const int64_t row = tile * scratch_.height();
    const int64_t place = row * kTileRowBytes;
    const int64_t group_codes = layout_.UnitsOf(layout_.GroupSteps(0)) * layout_.interleave;  // bytes of a row
    TileProductArgs product;
    product.a = codes.codes + row * codes.stride + run.group * group_codes + UnitsBefore(run) * layout_.interleave;
    product.a_stride = codes.stride;
    product.a_tile_stride = scratch_.height() * codes.stride;
    product.c = Scratch(scratch_.sums_at() + place);
    product.c_stride = scratch_.sums_stride();
    product.c_tile_stride = scratch_.height() * kTileRowBytes;
    product.resume = run.resume;
    const TileAhead ahead = SetPanels(product, tile, panel, width, block, run);
    const int64_t group_bytes = bytes_ ? layout_.GroupBytes(run.steps) : scratch_.group_stride();
    TileSumsArgs add;
    add.row_scales = codes.scales + row;
    add.rows = std::min(tiles * scratch_.height(), args_.rows - row);
    for (int64_t group = run.group; group < run.group + run.groups; ++group) {
      Enter(kernel_, TileProductEntry(static_cast<int>(tiles), static_cast<int>(width), ahead), product);
      product.a += group_codes;
      product.b += group_bytes;
      product.prefetch += group_bytes;
      if (product.b_tail != nullptr) product.b_tail += scratch_.group_stride();
      if (run.partial) continue;
      add.corrections =
          codes.corrections + group * codes.corrections_stride + row * static_cast<int64_t>(sizeof(int32_t));
      for (int64_t i = 0; i < width; ++i) {
        add.sums = product.c + i * product.c_stride;
        add.c = Outputs() + place + i * product.c_stride;
        add.header = Header(block, group, i);
        Enter(kernel_, kTileGroupEntry, add);
      }
    }
  }

  // The tiles of a run's first group, and what is asked for meanwhile.
  TileAhead SetPanels(TileProductArgs& product, int64_t tile, int64_t panel, int64_t width, const DepthBlock& block,
                      const GroupRun& run) const {
    const int64_t steps = StepsOf(layout_, run.steps);
    if (!bytes_) {
      product.b = Tiles(block, run.group);
      product.b_stride = scratch_.panel_stride();
      product.blocks = CeilDiv(steps, tile_steps_);
      product.prefetch = product.b;
      return TileAhead::kNone;
    }
    product.b = Codes(panel, run);
    product.b_stride = panel_bytes_;
    product.blocks = steps / tile_steps_;
    if (steps % tile_steps_ != 0) product.b_tail = Tiles(block, run.group);
    product.prefetch_step = tile_steps_ * kTileRowBytes;
    if (scratch_.row_tiles() <= kMostRowTiles) {
      product.prefetch = product.b + kStreamAhead / width;
      return TileAhead::kStream;
    }
    // The same block of the next panels: every other pair of row tiles asks for the other half of each tile.
    const int64_t half = tile / kMostRowTiles % 2 * (tile_steps_ / 2);
    product.prefetch = product.b + width * panel_bytes_ + half * kTileRowBytes;
    return TileAhead::kShare;
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const ir::CodeLayout layout_;
  const bool bytes_;
  const int64_t tile_steps_;
  const int64_t panel_bytes_;
  const RowInt8TileScratch scratch_;
};

}  // namespace

bool GroupsSuitTiles(const ir::KernelSpec& spec) { return LongestGroup(spec) >= kFewestGroupInputs; }

int64_t TileSteps(const ir::KernelSpec& spec) {
  return std::min(kTileRows, StepsOf(ir::CodeLayoutOf(spec), LongestGroup(spec)));
}

Schedule MakeRowInt8TileSchedule(const ir::KernelSpec& spec) {
  Schedule schedule = MakeTileSchedule(spec);
  schedule.few_rows = kFewTileRows;
  schedule.step = kStep;
  schedule.tile_rows = RowsOfTile(spec, schedule, kMostRowBlocks);
  schedule.tile_panels = kPanelsOfTile;
  return schedule;
}

RowInt8TileScratch::RowInt8TileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows,
                                       int64_t panels) {
  row_tiles_ = CeilDiv(rows, kTileRows);
  height_ = CeilDiv(rows, std::max<int64_t>(1, row_tiles_));
  block_inputs_ = BlockSteps(*spec.scheme, spec.depth(), schedule.depth_block * schedule.step);
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec);
  const int64_t group = LongestGroup(spec);
  const int64_t groups = CeilDiv(block_inputs_, group);  // of a block
  if (AreBytes(spec)) {
    panel_stride_ = kTileBytes;
    group_stride_ = kMostPanelTiles * panel_stride_;
  } else {
    group_stride_ = RoundUp(StepsOf(layout, std::min(group, block_inputs_)), TileSteps(spec)) * kTileRowBytes;
    panel_stride_ = groups * group_stride_;
  }
  tiles_at_ = headers_at() + groups * kMostPanelTiles * static_cast<int64_t>(sizeof(GroupHeader));
  sums_at_ = tiles_at_ + (AreBytes(spec) ? groups * group_stride_ : kMostPanelTiles * panel_stride_);
  merged_panels_ = spec.order == ir::InputOrder::kNatural ? 0 : panels;
}

int64_t RowInt8TileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const int64_t few = std::min(rows, schedule.few_rows);
  const int64_t few_bytes = RowInt8ScratchBytes(spec, VectorSchedule(schedule), few, panels);
  if (rows <= schedule.few_rows) return few_bytes;
  return std::max(few_bytes, RowInt8TileScratch(spec, schedule, rows, panels).bytes());
}

void RunRowInt8Tiles(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows <= kernel.schedule.few_rows) return RunRowInt8(kernel, args);
  if (args.panels > 0) Call(kernel, args).Run();
}

}  // namespace clikart::codegen
