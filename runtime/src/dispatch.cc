#include "dispatch.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clikart/codegen/driver.h"
#include "clikart/ir/panel_layout.h"
#include "log.h"
#include "parallel.h"

namespace clikart {
namespace {

// A rough price of a launch, only to choose between one thread and many and to size tiles. A core
// multiplies and adds some 32 numbers a nanosecond with generated code and streams some 16 bytes; the
// portable kernel takes about 16 times as long.
constexpr double kMultiplyAddsPerNs = 32, kBytesPerNs = 16, kPortableFactor = 16;
// What preparing an input of a row takes, and what prepared rows may fill: more of them go in turns.
constexpr double kPrepareNs = 0.2;
constexpr int64_t kPreparedBytes = 32 << 20;
// Below this a second thread would not pay for being asked (docs/thread-pool.md).
constexpr double kInlineNs = 6000;
// Tiles for each thread, so that a late thread costs little, also of those that copy their rows first; and the least
// that a tile should take.
constexpr int64_t kTilesPerThread = 24, kCopyingTilesPerThread = 8;
constexpr double kTileNs = 3000;
// Under per_call residency a tile's panels are packed, read and dropped: they should stay in L2.
constexpr int64_t kPerCallPackBytes = 256 << 10;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a launch is cut: copies x panel_tiles x row_tiles, each about equally large.
struct Partition {
  int64_t panel_tiles = 1;
  int64_t row_tiles = 1;
  int64_t row_unit = 1;        // rows go to tiles in blocks of this
  int64_t row_units = 0;       // how many such blocks there are
  int64_t units_per_call = 1;  // the most that one call of the kernel takes
};

// Panels [first, end) of slice `copy`, and row blocks [unit, unit_end).
struct Tile {
  int64_t copy, first, end, unit, unit_end;
};

double EstimateNs(const Launch& launch) {
  const ir::KernelSpec& spec = launch.kernel->image.spec;
  const double weights = static_cast<double>(launch.args.panels) * static_cast<double>(launch.panel_bytes);
  const double multiply_adds = static_cast<double>(launch.args.rows) *
                               static_cast<double>(launch.args.panels * ir::kPanelLanes) *
                               static_cast<double>(spec.depth());
  // Four codes, or two narrow floats, are multiplied as fast as one f32.
  const double per_ns = kMultiplyAddsPerNs * static_cast<double>(launch.kernel->image.schedule.step);
  const double one =
      multiply_adds / per_ns * (launch.kernel->code == nullptr ? kPortableFactor : 1) + weights / kBytesPerNs;
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
  cut.units_per_call = std::max<int64_t>(1, most_rows / cut.row_unit);
  // A packed panel range serves all rows of its tile, call by call.
  cut.row_tiles = launch.pack != nullptr ? 1 : CeilDiv(cut.row_units, cut.units_per_call);
  if (width == 1) return cut;
  const double total_ns = EstimateNs(launch);
  const bool copies = launch.args.prepared.data == nullptr && rows > schedule.row_block;
  const int64_t most = width * (copies ? kCopyingTilesPerThread : kTilesPerThread);
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(total_ns / kTileNs), 1, most);
  const auto tiles = [&] { return launch.copies * cut.panel_tiles * cut.row_tiles; };
  // Panels first: each has its own weights, so no two threads read the same ones. A cut in rows makes
  // every row tile read the weights again, and under per_call pack them, which pays only for idle threads.
  const int64_t wanted_of_rows = launch.pack != nullptr ? std::min<int64_t>(wanted, width) : wanted;
  if (tiles() < wanted) cut.panel_tiles = std::min(panels, CeilDiv(wanted, launch.copies * cut.row_tiles));
  if (tiles() < wanted_of_rows) {
    cut.row_tiles = std::min(cut.row_units, CeilDiv(wanted_of_rows, launch.copies * cut.panel_tiles));
  }
  // Few tiles: every thread the same number of them, where that is a matter of some more.
  if (const int64_t rest = tiles() % width; rest != 0 && tiles() < most) {
    const int64_t step = launch.copies * cut.row_tiles;
    const int64_t more = CeilDiv(CeilDiv(tiles(), width) * width, step);
    if (more * step % width == 0 && more <= panels) cut.panel_tiles = more;
  }
  return cut;
}

void RunTile(const Launch& launch, const Partition& cut, const Tile& tile) {
  const codegen::KernelImage& image = launch.kernel->image;
  const ir::KernelSpec& spec = image.spec;
  codegen::TileArgs args = launch.args;
  const int64_t rows = args.rows;
  if (launch.bind != nullptr) launch.bind(launch.context, tile.copy, args);
  args.panels = tile.end - tile.first;
  const int64_t calls = CeilDiv(tile.unit_end - tile.unit, cut.units_per_call);
  const int64_t most_rows = std::min(rows, CeilDiv(tile.unit_end - tile.unit, calls) * cut.row_unit);
  const size_t packed_bytes =
      launch.pack == nullptr ? 0 : static_cast<size_t>((args.panels * launch.panel_bytes + 63) & ~63);
  const size_t kernel_bytes = static_cast<size_t>(codegen::ScratchBytes(spec, image.schedule, most_rows, args.panels));
  std::byte* scratch = ThreadScratch(packed_bytes + kernel_bytes);
  if (launch.pack != nullptr) {
    launch.pack(launch.context, tile.copy, args.first_panel + tile.first, args.panels, scratch);
    args.weights = scratch;
  } else if (args.weights != nullptr) {
    args.weights += tile.first * launch.panel_bytes;
  }
  args.first_panel += tile.first;
  args.scratch = scratch + packed_bytes;
  const codegen::TileArgs whole = args;
  for (int64_t call = 0; call < calls; ++call) {
    const int64_t units = tile.unit_end - tile.unit;
    const int64_t row = (tile.unit + units * call / calls) * cut.row_unit;
    const int64_t row_end = std::min(rows, (tile.unit + units * (call + 1) / calls) * cut.row_unit);
    if (whole.offsets != nullptr) {
      args.offsets = whole.offsets + row * spec.taps;
    } else {
      args.x = whole.x + row * whole.x_stride;
    }
    args.prepared.first = row;
    args.y = whole.y + row * whole.y_stride;
    args.rows = row_end - row;
    image.run(image, args);
  }
}

// Tile `index`: slices outermost, rows innermost, so that consecutive tiles share their weights.
void RunIndex(const Launch& launch, const Partition& cut, int64_t index) {
  const int64_t row_tile = index % cut.row_tiles;
  const int64_t panel_tile = index / cut.row_tiles % cut.panel_tiles;
  const int64_t panels = launch.args.panels;
  RunTile(launch, cut,
          {.copy = index / (cut.row_tiles * cut.panel_tiles),
           .first = panels * panel_tile / cut.panel_tiles,
           .end = panels * (panel_tile + 1) / cut.panel_tiles,
           .unit = cut.row_units * row_tile / cut.row_tiles,
           .unit_end = cut.row_units * (row_tile + 1) / cut.row_tiles});
}

int Width(const Launch& launch) { return EstimateNs(launch) < kInlineNs ? 1 : ParallelWidth(); }

void RunTiles(const Launch& launch) {
  const int width = Width(launch);
  const Partition cut = MakePartition(launch, width);
  const int64_t tiles = launch.copies * cut.panel_tiles * cut.row_tiles;
  if (width == 1 || tiles == 1) {
    const MxcsrScope scope;
    for (int64_t i = 0; i < tiles; ++i) RunIndex(launch, cut, i);
    return;
  }
  ParallelFor(tiles, [&](int64_t i) { RunIndex(launch, cut, i); });
}

// What all tiles read in place of x, made at `out`. Only linears ask for it, which have one slice.
codegen::PreparedRows Prepare(const Launch& launch, std::byte* out) {
  const codegen::KernelImage& image = launch.kernel->image;
  const int64_t rows = launch.args.rows;
  codegen::PrepareArgs args{
      .x = launch.args.x, .x_stride = launch.args.x_stride, .codes = launch.args.codes, .rows = rows};
  args.out = out;
  const double total_ns = static_cast<double>(rows) * static_cast<double>(image.spec.k) * kPrepareNs;
  const int64_t parts = total_ns < kInlineNs ? 1 : std::min<int64_t>(rows, Width(launch));
  ParallelFor(parts, [&](int64_t part) {
    codegen::PrepareArgs own = args;
    own.first = rows * part / parts;
    own.count = rows * (part + 1) / parts - own.first;
    own.scratch = ThreadScratch(static_cast<size_t>(codegen::PrepareScratchBytes(image)));
    codegen::PrepareRows(image, own);
  });
  return {.data = args.out, .count = rows};
}

// As many rows at a time as may be prepared.
void RunTurns(const Launch& launch) {
  const codegen::KernelImage& image = launch.kernel->image;
  const int64_t rows = launch.args.rows;
  int64_t bytes = codegen::PreparedBytes(image, launch.args.codes, rows);
  if (bytes == 0) return RunTiles(launch);
  int64_t most = rows;
  if (bytes > kPreparedBytes) {
    const int64_t tile_rows = std::max<int64_t>(1, image.schedule.tile_rows);
    most = std::max<int64_t>(1, kPreparedBytes / (bytes / rows) / tile_rows) * tile_rows;
    bytes = codegen::PreparedBytes(image, launch.args.codes, most);
  }
  std::byte* const prepared = LaunchScratch(static_cast<size_t>(bytes));
  for (int64_t row = 0; row < rows; row += most) {
    Launch turn = launch;
    turn.args.x += row * launch.args.x_stride;
    turn.args.y += row * launch.args.y_stride;
    turn.args.rows = std::min(most, rows - row);
    turn.args.prepared = Prepare(turn, prepared);
    RunTiles(turn);
  }
}

void RunAndTell(const Launch& launch) {
  const auto start = std::chrono::steady_clock::now();
  RunTurns(launch);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  Log(kLogRuns, absl::StrFormat("ran %s: %d rows%s in %.3f ms", launch.kernel->signature, launch.args.rows,
                                launch.copies == 1 ? "" : absl::StrCat(" x ", launch.copies), time.count()));
}

}  // namespace

void Run(const Launch& launch) {
  if (launch.args.rows == 0 || launch.args.panels == 0 || launch.copies == 0) return;
  CountDispatch(launch.kernel->signature);
  if (Logs(kLogRuns)) return RunAndTell(launch);
  RunTurns(launch);
}

}  // namespace clikart
