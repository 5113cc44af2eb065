// What walks a tile of outputs with matrix tiles (AMX): 16 rows of 64 bytes each, eight of them.
//
// A packed panel of four bytes a lane and step is a column of such tiles as it lies: sixteen steps are one.
// Rows of x are the tiles of the other side, 64 bytes a step. A product of the two adds sixteen steps to 16
// rows of a panel's accumulators. Rows are cut into tiles of one height, and what is missing in the last one
// is zeros in the staged copy, so one configuration serves a whole call.
#pragma once

#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "clikart/codegen/schedule.h"
#include "clikart/ir/kernel_spec.h"
#include "panel_driver.h"

namespace clikart::codegen {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// Register tiles that a product entry holds accumulators for: row tiles by panels.
inline constexpr int kMostRowTiles = 2, kMostPanelTiles = 2;

// The operand of ldtilecfg.
struct TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfiguration) == 64);

// Tile registers by role; a configuration gives each its height.
inline constexpr int TileAccumulator(int row_tile, int panel) { return row_tile * kMostPanelTiles + panel; }
inline constexpr int TileOfRows(int row_tile) { return 4 + row_tile; }
inline constexpr int TileOfPanel(int panel) { return 6 + panel; }

// For row tiles of that height, and products over so many dwords of a row.
inline TileConfiguration ConfigurationOf(int64_t height, int64_t depth = kTileRows) {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = kTileRowBytes;
    configuration.rows[tile] = static_cast<uint8_t>(height);
  }
  for (int tile = 0; tile < kMostRowTiles; ++tile) {
    configuration.row_bytes[TileOfRows(tile)] = static_cast<uint16_t>(depth * 4);
  }
  for (int panel = 0; panel < kMostPanelTiles; ++panel) {
    configuration.rows[TileOfPanel(panel)] = static_cast<uint8_t>(depth);
  }
  return configuration;
}

// Accumulators of row tiles by panels: c (+)= a * b.
struct TileProductArgs {
  const std::byte* a = nullptr;  // row 0 of the first row tile
  int64_t a_stride = 0;          // bytes between rows
  int64_t a_tile_stride = 0;     // bytes between row tiles
  const std::byte* b = nullptr;  // the first panel
  int64_t b_stride = 0;          // bytes between panels
  int64_t blocks = 0;            // of a tile's depth, that panels have whole; may be 0
  // One block more, of panels padded with zeros: kTileBytes each, side by side. Null where there is none.
  const std::byte* b_tail = nullptr;
  std::byte* c = nullptr;     // 32-bit accumulators: [panel][row][16], rows kTileRowBytes apart
  int64_t c_stride = 0;       // bytes between panels
  int64_t c_tile_stride = 0;  // bytes between row tiles
  int64_t resume = 0;         // 0: start from 0, else from what c holds
  // Each block asks for TileLinesAhead cache lines of each panel from here on, then this moves by
  // prefetch_step. Any address will do.
  const std::byte* prefetch = nullptr;
  int64_t prefetch_step = 0;
};

// How weights are asked for ahead: all lines of the panels at hand, or half as many of the next ones, because
// other row tiles ask for the rest; none of weights that were just decoded.
enum class TileAhead : uint8_t { kStream, kShare, kNone };
// Of tiles of so many lines.
constexpr int TileLinesAhead(TileAhead ahead, int lines) {
  if (ahead == TileAhead::kNone) return 0;
  return ahead == TileAhead::kStream ? lines : (lines + 1) / 2;
}

// Entry numbers, behind those of vectors, as a kernel may take some rows by these. The first two take a
// TileConfiguration.
inline constexpr int kTileConfigureEntry = kFirstOtherEntry;
inline constexpr int kTileReleaseEntry = kTileConfigureEntry + 1;
constexpr int TileProductEntry(int row_tiles, int panels, TileAhead ahead) {
  return kTileReleaseEntry + 1 + ((row_tiles - 1) * kMostPanelTiles + panels - 1) * 3 + static_cast<int>(ahead);
}
// What adds a group's sums to the outputs, of quantized weights.
inline constexpr int kTileGroupEntry = TileProductEntry(kMostRowTiles, kMostPanelTiles, TileAhead::kNone) + 1;
static_assert(kTileGroupEntry < kMaxEntries);

Schedule MakeTileSchedule(const ir::KernelSpec& spec);

// Where a call keeps what in its scratch memory.
class TileRegions {
 public:
  TileRegions(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  int64_t row_tiles() const { return row_tiles_; }
  int64_t height() const { return height_; }  // rows of each row tile
  int64_t padded_rows() const { return row_tiles_ * height_; }
  bool staged() const { return staged_; }                 // rows are copied to scratch
  int64_t blocks() const { return blocks_; }              // of 64 bytes in a row, the last one may be cut
  int64_t depth_blocks() const { return depth_blocks_; }  // of those between two stores of the accumulators
  int64_t row_stride() const { return row_stride_; }
  int64_t accumulator_panel_stride() const { return padded_rows() * kTileRowBytes; }
  bool keeps_accumulators() const { return depth_blocks_ < blocks_; }  // of all panels

  // Byte offsets of the regions, each on a cache line.
  int64_t configuration_at() const { return 0; }
  int64_t tails_at() const { return kTileRowBytes; }
  int64_t rows_at() const { return tails_at() + kMostPanelTiles * kTileBytes; }
  int64_t accumulators_at() const { return rows_at() + (staged_ ? padded_rows() * row_stride_ : 0); }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t row_tiles_;
  int64_t height_;
  bool staged_;
  int64_t blocks_;
  int64_t depth_blocks_;
  int64_t row_stride_;
  int64_t bytes_;
};

// Of a call of so many rows or fewer.
int64_t TileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

// TileFunction of emitters that provide these entries.
void RunTiles(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
