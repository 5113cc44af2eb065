// The loop nest of compute="int8" by matrix tiles (AMX-INT8), and the contract with the code it calls.
//
// Rows are the codes of row_int8_driver.h, signed, weights unsigned, and the sum of a group is an integer: every bit is
// that of vectors, which take few rows by the same codes. A *step* is a part of a unit there: four codes of a row by
// four of each lane. Codes of a byte are tiles as they lie; narrower ones are unpacked to bytes, a depth block of two
// panels at a time, once for all rows. At a group's end AVX-512 adds its sums to f32 outputs.
//
// Entries are those of row_int8_driver.h for few rows, those of tile_driver.h, and two more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "row_int8_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

// Rule of the shortest group: what follows a product of tiles takes as long whatever its depth, so that below this
// tiles gain nothing over dot products of vectors.
inline constexpr int64_t kFewestGroupInputs = 32;
bool GroupsSuitTiles(const ir::KernelSpec& spec);

// Rule of few rows: up to so many wait for the codes to come from memory, which vectors read as they lie.
inline constexpr int64_t kFewTileRows = 8;

// Steps of a tile, of which a group has a number, and the last one is filled up with zeros.
int64_t TileSteps(const ir::KernelSpec& spec);

// Reads the headers of a panel's groups, and lays out codes of less than a byte as tiles.
struct UnpackTilesArgs {
  const std::byte* header = nullptr;  // of the first group
  const std::byte* codes = nullptr;   // of its first unit here
  int64_t groups = 0;                 // at least 1; of more than one all units are taken
  int64_t units = 0;                  // of each, at least 1
  std::byte* out = nullptr;           // [step][16 lanes] of four bytes
  int64_t out_stride = 0;             // bytes between groups
  GroupHeader* headers = nullptr;     // of the first group
  int64_t headers_stride = 0;         // bytes between groups
  int64_t prefetch = 0;               // bytes from the codes to what is asked for meanwhile
};
inline constexpr int kUnpackTilesEntry = kTileGroupEntry + 1;
static_assert(kUnpackTilesEntry < kMaxEntries);

// kTileGroupEntry. One panel of a group: c += (sums, corrected) * (row scale * scale), and the minimum's term.
struct TileSumsArgs {
  const std::byte* sums = nullptr;  // int32 [row][16]
  std::byte* c = nullptr;           // f32 [row][16]
  const GroupHeader* header = nullptr;
  const std::byte* corrections = nullptr;  // [row], as QuantizeArgs has them
  const float* row_scales = nullptr;       // [row]
  int64_t rows = 0;                        // at least 1
};

Schedule MakeRowInt8TileSchedule(const ir::KernelSpec& spec);

// Where a call keeps what in its scratch memory.
class RowInt8TileScratch {
 public:
  RowInt8TileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  int64_t row_tiles() const { return row_tiles_; }
  int64_t height() const { return height_; }  // rows of each row tile; what the last ones lack is of anything
  int64_t block_inputs() const { return block_inputs_; }  // of a depth block: whole groups or a piece of one
  int64_t group_stride() const { return group_stride_; }  // bytes between tiles of groups
  int64_t panel_stride() const { return panel_stride_; }  // bytes between tiles of panels
  int64_t sums_stride() const { return row_tiles_ * height_ * kTileRowBytes; }  // bytes between panels of sums

  // Byte offsets of the regions, each on a cache line.
  int64_t configuration_at() const { return 0; }
  int64_t headers_at() const { return kTileRowBytes; }  // [group of a block][panel] GroupHeader
  // Codes of less than a byte: [panel][group of a block] tiles. Bytes: the last tile of each group, where it is cut,
  // and zeros behind it: [group of a block][panel].
  int64_t tiles_at() const { return tiles_at_; }
  int64_t sums_at() const { return sums_at_; }  // int32 of a group: [panel][row][16]
  int64_t outputs_at() const { return sums_at_ + kMostPanelTiles * sums_stride(); }     // f32, likewise
  int64_t merged_at() const { return outputs_at() + kMostPanelTiles * sums_stride(); }  // of all panels, with an order
  int64_t bytes() const { return merged_at() + merged_panels_ * sums_stride(); }

 private:
  int64_t row_tiles_;
  int64_t height_;
  int64_t block_inputs_;
  int64_t group_stride_;
  int64_t panel_stride_;
  int64_t tiles_at_;
  int64_t sums_at_;
  int64_t merged_panels_;
};

// Of a call of so many rows or fewer.
int64_t RowInt8TileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

// TileFunction of emitters that provide these entries.
void RunRowInt8Tiles(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
