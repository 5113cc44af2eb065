// The loop nest of kernels over quantized weights and float inputs (rule 3), and the contract with the code it calls.
//
// Entries are those of panel_driver.h, but for the register kernels and for what widens a panel. A register kernel
// walks groups: t starts from +0 in each, and at its end acc = fma(t, scale, acc), with the accumulators in the
// first-level cache. Two forms of it compute the same:
//
//   few rows   codes are decoded in registers, a panel's whole stream front to back (WeightForm::kPacked)
//   many rows  a depth block of a few panels is decoded to f32 once for all rows (WeightForm::kWidened)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "panel_driver.h"
#include "placed_codes.h"

namespace clikart::codegen {

// A group's lanes as f32; the second-level scale is in the first.
struct alignas(64) GroupLanes {
  float scale[ir::kPanelLanes];
  float minimum[ir::kPanelLanes];
};

// What an instruction set takes zero points to: for some positions of a code in its unit a vector to subtract.
struct alignas(64) CodeOffsets {
  float lanes[kCodePositions][ir::kPanelLanes];
};

// Multiplies a block of rows by `groups` groups of `steps` steps of one panel, or of several neighbouring ones. Fields
// that are not const are the kernel's own: they may change.
struct CodeMicroArgs {
  const std::byte* a = nullptr;  // rows of f32, in the order of k
  int64_t a_stride = 0;          // bytes between rows
  // Packed: the first group of the first panel. Widened: its first step, 16 floats a step.
  const std::byte* b = nullptr;
  int64_t b_stride = 0;    // bytes between panels
  int64_t groups = 0;      // at least 1
  int64_t steps = 0;       // may be 0
  std::byte* c = nullptr;  // accumulators, added to: [panel][row][16], rows kAccumulatorRow apart
  int64_t c_stride = 0;    // bytes between panels
  // Schemes with a minimum: the rows' sums of each group, [group][row].
  const float* sums = nullptr;
  int64_t sums_stride = 0;  // bytes between groups
  // Widened: [group][panel].
  const GroupLanes* lanes = nullptr;
  // Widened, of one group that is multiplied in pieces: its sums so far, as c is laid out. They are where it starts
  // from unless resume is 0, and where it ends, without touching c, unless partial is 0.
  std::byte* t = nullptr;
  int64_t resume = 0;
  int64_t partial = 0;
  // Packed, with scales of a second level: of the first panel, by lane.
  const float* lane_scales = nullptr;
  // Packed: steps of the group that are left, and the group at hand by panel.
  int64_t left = 0;
  GroupLanes own[kMostTilePanels];
  CodeOffsets offsets[kMostTilePanels];
};

// Decodes `groups` groups of `steps` steps of a panel. Writes up to a unit of codes more than these.
struct WidenCodesArgs {
  const std::byte* header = nullptr;  // of the first group
  const std::byte* codes = nullptr;   // of its first step here, a whole unit
  int64_t groups = 0;                 // at least 1; of more than one all steps are taken
  int64_t steps = 0;                  // may be 0
  std::byte* out = nullptr;           // [step][16] floats
  GroupLanes* lanes = nullptr;        // of each group
  int64_t lanes_stride = 0;           // bytes between groups
  const float* lane_scales = nullptr;
  int64_t prefetch = 0;  // bytes from the codes to what is asked for meanwhile
  CodeOffsets offsets;
};

// Rows of x as f32, their columns in the given order.
struct GatherArgs {
  const std::byte* x = nullptr;
  int64_t x_stride = 0;  // bytes
  const int32_t* columns = nullptr;
  std::byte* out = nullptr;
  int64_t out_stride = 0;  // bytes
  int64_t rows = 0;        // at least 1
  int64_t count = 0;       // at least 1
};

// Entry numbers beside those of panel_driver.h; only where the spec's inputs are sorted.
inline constexpr int kGatherEntry = kFirstOtherEntry;
static_assert(kGatherEntry < kMaxEntries);

// A code of the scheme takes few enough operations to be decoded again for each block of rows.
bool DecodesInRegisters(const ir::QuantScheme& scheme);

// Panels that a block of so many rows streams side by side: as many as accumulators and zero points of each leave
// registers for.
int64_t StreamedPanels(const Schedule& schedule, int64_t rows);
// Blocks that few rows are cut into.
constexpr int64_t DecodedBlocks(const Schedule& schedule, int64_t rows) {
  return (rows + schedule.decoded_block - 1) / schedule.decoded_block;
}
constexpr int64_t FirstDecodedBlock(const Schedule& schedule, int64_t rows) {
  return rows == 0 ? 0 : RowsOfBlock(rows, DecodedBlocks(schedule, rows), 0);
}

// Those that a kernel of that schedule needs.
std::vector<MicroKind> CodeMicroKinds(const Schedule& schedule);

// Where a tile's scratch memory is used for what.
class CodeScratch {
 public:
  CodeScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  bool few() const { return few_; }                     // codes are decoded in registers
  int64_t block_steps() const { return block_steps_; }  // of a depth block, whole groups or a piece of one
  int64_t widened_stride() const { return widened_stride_; }
  bool keeps_accumulators() const { return keeps_accumulators_; }  // of all panels

  // Byte offsets of the regions, each on a cache line.
  int64_t lanes_at() const { return 0; }
  int64_t widened_at() const { return widened_at_; }
  int64_t accumulators_at() const { return accumulators_at_; }
  int64_t chains_at() const { return chains_at_; }  // CodeMicroArgs::t
  int64_t merged_at() const { return merged_at_; }  // of panels whose lanes sum in several orders
  int64_t bytes() const { return bytes_; }

 private:
  bool few_;
  bool keeps_accumulators_;
  int64_t block_steps_;
  int64_t widened_stride_;
  int64_t widened_at_;
  int64_t accumulators_at_;
  int64_t chains_at_;
  int64_t merged_at_;
  int64_t bytes_;
};

// Of a call of so many rows or fewer.
int64_t CodeScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

// TileFunction of emitters that provide these entries.
void RunCodes(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
