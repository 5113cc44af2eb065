// The loop nest of kernels that multiply rows of bf16 by codes with matrix tiles (rule 3 with rule 5's products), and
// the contract with the code it calls.
//
// Codes of a group become bf16 pairs, exactly: the tiles that a packed panel of bf16 weights has. A product of tiles
// makes t over the group, from zero, and AVX-512 adds acc = fma(t, scale, acc) and the group's minimum. Entries are
// those of tile_driver.h, with TileAhead::kNone, and two more. A group begins with a tile, so its size is a multiple of
// a tile's depth or the row is one group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "code_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

// Inputs that a tile of pairs takes.
inline constexpr int64_t kPairTileSteps = kTileRowBytes / 2;

// kWidenEntry takes WidenCodesArgs whose `out` is [step / 2][16 lanes] pairs: the even step is the low half. It writes
// up to a unit of codes more than there are steps. Groups of several are multiples of kPairTileSteps.

// One panel of a group: c += t * scale, then sum * minimum.
struct TileGroupArgs {
  const std::byte* t = nullptr;  // [row][16]
  std::byte* c = nullptr;        // [row][16]
  const GroupLanes* lanes = nullptr;
  const float* sums = nullptr;  // [row], of schemes with a minimum
  int64_t rows = 0;             // at least 1
};

// Each group of a weight of so many inputs begins with a tile.
bool GroupsFillTiles(const ir::QuantScheme& scheme, int64_t depth);

Schedule MakeCodeTileSchedule(const ir::KernelSpec& spec);

// Where a call keeps what in its scratch memory.
class CodeTileScratch {
 public:
  CodeTileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  bool few() const { return few_; }  // one product takes all rows, and their whole depth is kept
  int64_t row_tiles() const { return row_tiles_; }
  int64_t height() const { return height_; }  // rows of each row tile
  int64_t padded_rows() const { return row_tiles_ * height_; }
  bool staged() const { return staged_; }               // rows are copied to scratch
  int64_t block_steps() const { return block_steps_; }  // of a depth block: whole groups or a piece of one
  int64_t row_stride() const { return row_stride_; }
  int64_t pairs_stride() const { return pairs_stride_; }  // bytes between panels of pairs
  int64_t accumulator_stride() const { return padded_rows() * kTileRowBytes; }
  bool keeps_accumulators() const { return keeps_accumulators_; }  // of all panels; likewise chains

  // Byte offsets of the regions, each on a cache line.
  int64_t configuration_at() const { return 0; }
  int64_t rows_at() const { return kTileRowBytes; }
  int64_t sums_at() const { return sums_at_; }    // [group][row]
  int64_t lanes_at() const { return lanes_at_; }  // [group][panel] GroupLanes
  int64_t pairs_at() const { return pairs_at_; }
  int64_t accumulators_at() const { return accumulators_at_; }
  int64_t chains_at() const { return chains_at_; }  // t, as the accumulators lie
  int64_t merged_at() const { return merged_at_; }  // of panels whose lanes sum in several orders
  int64_t bytes() const { return bytes_; }

 private:
  int64_t row_tiles_;
  int64_t height_;
  bool few_;
  bool staged_;
  bool keeps_accumulators_;
  int64_t block_steps_;
  int64_t row_stride_;
  int64_t pairs_stride_;
  int64_t sums_at_;
  int64_t lanes_at_;
  int64_t pairs_at_;
  int64_t accumulators_at_;
  int64_t chains_at_;
  int64_t merged_at_;
  int64_t bytes_;
};

// Of a call of so many rows or fewer.
int64_t CodeTileScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

// TileFunction of emitters that provide these entries.
void RunCodeTiles(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
