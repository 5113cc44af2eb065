#include "dispatch.h"

#include <algorithm>

#include "clikart/ir/panel_layout.h"
#include "parallel.h"

namespace clikart {
namespace {

// A rough price of a launch, only to choose between one thread and many and to size tiles. A core
// multiplies and adds some 32 numbers a nanosecond with generated code and streams some 16 bytes; the
// portable kernel takes about 16 times as long.
constexpr double kMultiplyAddsPerNs = 32, kBytesPerNs = 16, kPortableFactor = 16;
// Below this a second thread would not pay for being asked (docs/thread-pool.md).
constexpr double kInlineNs = 6000;
// Tiles for each thread, so that a late thread costs little; and the least that a tile should take.
constexpr int64_t kTilesPerThread = 8;
constexpr double kTileNs = 3000;
// Under per_call residency a tile's panels are packed, read and dropped: they should stay in L2.
constexpr int64_t kPerCallPackBytes = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a launch is cut: copies x panel_tiles x row_tiles, each about equally large.
struct Partition {
  int64_t panel_tiles = 1;
  int64_t row_tiles = 1;
  int64_t row_unit = 1;   // rows go to tiles in blocks of this
  int64_t row_units = 0;  // how many such blocks there are
};

int64_t PanelBytesOf(const ir::KernelSpec& spec) {
  return ir::kPanelLanes * static_cast<int64_t>(ir::SizeOf(spec.w)) * spec.depth();
}

double EstimateNs(const Launch& launch) {
  const ir::KernelSpec& spec = launch.kernel->image.spec;
  const double weights = static_cast<double>(launch.args.panels) * static_cast<double>(PanelBytesOf(spec));
  const double multiply_adds = static_cast<double>(launch.args.rows) *
                               static_cast<double>(launch.args.panels * ir::kPanelLanes) *
                               static_cast<double>(spec.depth());
  const double one = multiply_adds / kMultiplyAddsPerNs * (launch.kernel->code == nullptr ? kPortableFactor : 1) +
                     weights / kBytesPerNs;
  return one * static_cast<double>(launch.copies);
}

// As few tiles as the schedule allows, then more until every thread has its share.
Partition MakePartition(const Launch& launch, int width) {
  const codegen::Schedule& schedule = launch.kernel->image.schedule;
  const int64_t rows = launch.args.rows, panels = launch.args.panels;
  int64_t most_panels = schedule.tile_panels > 0 ? schedule.tile_panels : panels;
  if (launch.pack != nullptr && launch.panel_bytes > 0) {
    most_panels = std::min(most_panels, std::max<int64_t>(1, kPerCallPackBytes / launch.panel_bytes));
  }
  const int64_t most_rows = schedule.tile_rows > 0 ? schedule.tile_rows : rows;
  Partition cut;
  cut.row_unit = std::max<int64_t>(1, std::min(schedule.row_block, most_rows));
  cut.row_units = CeilDiv(rows, cut.row_unit);
  cut.panel_tiles = CeilDiv(panels, most_panels);
  cut.row_tiles = CeilDiv(cut.row_units, std::max<int64_t>(1, most_rows / cut.row_unit));
  if (width == 1) return cut;
  const double total_ns = EstimateNs(launch);
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(total_ns / kTileNs), 1, kTilesPerThread * width);
  const auto tiles = [&] { return launch.copies * cut.panel_tiles * cut.row_tiles; };
  // Panels first: each has its own weights, so no two threads read the same ones. A cut in rows makes
  // every row tile read (and under per_call pack) the weights again.
  if (tiles() < wanted) cut.panel_tiles = std::min(panels, CeilDiv(wanted, launch.copies * cut.row_tiles));
  if (tiles() < wanted) cut.row_tiles = std::min(cut.row_units, CeilDiv(wanted, launch.copies * cut.panel_tiles));
  // Few tiles: every thread the same number of them, where that is a matter of some more.
  if (const int64_t rest = tiles() % width; rest != 0 && tiles() < kTilesPerThread * width) {
    const int64_t step = launch.copies * cut.row_tiles;
    const int64_t more = CeilDiv(CeilDiv(tiles(), width) * width, step);
    if (more * step % width == 0 && more <= panels) cut.panel_tiles = more;
  }
  return cut;
}

// Runs the tile [first, first + panels) x [row, row + rows) of `args`, the whole problem of one slice.
void RunTile(const Launch& launch, codegen::TileArgs args, int64_t copy, int64_t first, int64_t panels, int64_t row,
             int64_t rows) {
  const codegen::KernelImage& image = launch.kernel->image;
  const ir::KernelSpec& spec = image.spec;
  const size_t packed_bytes =
      launch.pack == nullptr ? 0 : static_cast<size_t>((panels * launch.panel_bytes + 63) & ~63);
  std::byte* scratch =
      ThreadScratch(packed_bytes + static_cast<size_t>(codegen::ScratchBytes(spec, image.schedule, rows, panels)));
  if (launch.pack != nullptr) {
    launch.pack(launch.context, copy, args.first_panel + first, panels, scratch);
    args.weights = scratch;
  } else if (args.weights != nullptr) {
    args.weights += first * PanelBytesOf(spec);
  }
  args.first_panel += first;
  args.panels = panels;
  if (args.offsets != nullptr) {
    args.offsets += row * spec.taps;
  } else {
    args.x += row * args.x_stride;
  }
  args.y += row * args.y_stride;
  args.rows = rows;
  args.scratch = scratch + packed_bytes;
  image.run(image, args);
}

// Tile `index`: slices outermost, rows innermost, so that consecutive tiles share their weights.
void RunIndex(const Launch& launch, const Partition& cut, int64_t index) {
  const int64_t row_tile = index % cut.row_tiles;
  const int64_t panel_tile = index / cut.row_tiles % cut.panel_tiles;
  const int64_t copy = index / (cut.row_tiles * cut.panel_tiles);
  codegen::TileArgs args = launch.args;
  if (launch.bind != nullptr) launch.bind(launch.context, copy, args);
  const int64_t first = args.panels * panel_tile / cut.panel_tiles;
  const int64_t end = args.panels * (panel_tile + 1) / cut.panel_tiles;
  const int64_t row = cut.row_units * row_tile / cut.row_tiles * cut.row_unit;
  const int64_t row_end = std::min(args.rows, cut.row_units * (row_tile + 1) / cut.row_tiles * cut.row_unit);
  RunTile(launch, args, copy, first, end - first, row, row_end - row);
}

}  // namespace

void Run(const Launch& launch) {
  const codegen::TileArgs& args = launch.args;
  if (args.rows == 0 || args.panels == 0 || launch.copies == 0) return;
  CountDispatch(launch.kernel->signature);
  const int width = EstimateNs(launch) < kInlineNs ? 1 : ParallelWidth();
  const Partition cut = MakePartition(launch, width);
  const int64_t tiles = launch.copies * cut.panel_tiles * cut.row_tiles;
  if (width == 1 || tiles == 1) {
    const MxcsrScope scope;
    for (int64_t i = 0; i < tiles; ++i) RunIndex(launch, cut, i);
    return;
  }
  ParallelFor(tiles, [&](int64_t i) { RunIndex(launch, cut, i); });
}

}  // namespace clikart
