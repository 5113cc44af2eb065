// The loop nest of depthwise kernels, and the contract with the code it calls. Lanes are channels: a
// register tile is a few rows by one panel, and each of its taps is a run of neighbours in x, which is
// read where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "panel_driver.h"

namespace clikart::codegen {

inline constexpr int kDepthwiseRows = 6;  // rows of a register tile

// Multiplies kDepthwiseRows rows by a run of neighbouring panels.
struct DepthwiseArgs {
  // Addresses of the rows' taps at the tile's first channel: [taps][kDepthwiseRows]. `end` is behind the last.
  const std::byte* const* taps = nullptr;
  const std::byte* const* end = nullptr;
  // Bytes that are added to these addresses: for the run's first panel, and where the run ends.
  int64_t first_channel = 0;
  int64_t channel_end = 0;             // more than first_channel
  const std::byte* weights = nullptr;  // the first panel
  int64_t weights_stride = 0;          // bytes between panels
  std::byte* c = nullptr;              // f32 accumulators: [row][panel][16]
  int64_t c_stride = 0;                // bytes between rows
};

// Entry numbers; the epilogue is kEpilogueEntry.
inline constexpr int kDepthwiseEntry = 0;      // whole panels
inline constexpr int kDepthwiseTailEntry = 1;  // the last panel, where it is cut off
inline constexpr int kDepthwisePairEntry = 3;  // two whole panels at a time; may be missing
static_assert(kDepthwiseTailEntry < kEpilogueEntry && kEpilogueEntry < kDepthwisePairEntry);

// Where a tile's scratch memory is used for what, in byte offsets on cache lines.
class DepthwiseScratch {
 public:
  DepthwiseScratch(const ir::KernelSpec& spec, int64_t panels);

  int64_t zeros_at() const { return 0; }
  int64_t zero_bytes() const { return zero_bytes_; }  // what a zero tap reads
  int64_t taps_at() const { return zero_bytes_; }
  int64_t accumulators_at() const { return accumulators_at_; }
  int64_t accumulator_stride() const { return accumulator_stride_; }
  int64_t bytes() const { return accumulators_at_ + kDepthwiseRows * accumulator_stride_; }

 private:
  int64_t zero_bytes_;
  int64_t accumulators_at_;
  int64_t accumulator_stride_;
};

// TileFunction of every emitter that provides these entries.
void RunDepthwise(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
