// The loop nest of float kernels over packed panels, and the contract with the code it calls.
//
// An emitter provides the entries below as System V functions that take one pointer to the matching
// argument struct. They keep to caller-saved registers and leave the upper vector halves clear.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/codegen/kernel.h"

namespace clikart::codegen {

inline constexpr int kRowBlock = 6;     // rows of the largest register tile
inline constexpr int kMicroUnroll = 4;  // k steps of the inner loop

inline constexpr int64_t kAccumulatorRow = 16 * sizeof(float);  // bytes of a panel's accumulators

// Multiplies a block of f32 rows by a run of one panel, or of several neighbouring ones.
struct MicroArgs {
  const std::byte* a = nullptr;  // f32 rows
  int64_t a_stride = 0;          // bytes between rows
  const std::byte* b = nullptr;  // first k step of the first panel
  int64_t b_stride = 0;          // bytes between panels
  int64_t depth = 0;             // k steps, may be 0
  std::byte* c = nullptr;        // f32 accumulators: [panel][row][16], rows kAccumulatorRow apart
  int64_t c_stride = 0;          // bytes between panels
  int64_t resume = 0;            // 0: start from +0, else from what c holds
  // Each kMicroUnroll k steps the cache lines of as many steps from here on are asked for (one such run
  // for each panel), then this moves by prefetch_step. Any address will do.
  const std::byte* prefetch = nullptr;
  int64_t prefetch_step = 0;
};

// Copies runs of x to f32: row i from x + i * x_stride, or through the offset table.
struct StageArgs {
  const std::byte* x = nullptr;
  int64_t x_stride = 0;              // bytes; dense
  const int64_t* offsets = nullptr;  // of row 0; indirect
  int64_t offsets_stride = 0;        // bytes between rows' entries
  std::byte* out = nullptr;
  int64_t out_stride = 0;  // bytes
  int64_t rows = 0;
  int64_t count = 0;  // elements of a row
};

// Widens `steps` k steps of a panel to f32.
struct WidenArgs {
  const std::byte* panel = nullptr;
  std::byte* out = nullptr;
  int64_t steps = 0;
};

// Bias, program, rounding and store for the accumulators of one panel; of several where the spec is not
// gated and c has their columns side by side.
struct EpilogueArgs {
  const std::byte* c = nullptr;
  int64_t c_stride = kAccumulatorRow;  // bytes
  const float* bias = nullptr;         // of the first column, where the spec has one
  std::byte* y = nullptr;              // row 0, the first column
  int64_t y_stride = 0;                // bytes
  int64_t rows = 0;
  int64_t columns = 0;  // valid ones, at least 1
};

// Entry numbers. Micro entries exist for the forms for which MicroEntry answers.
enum class WeightForm : uint8_t { kPacked, kWidened };  // as packed, or f32 made by `widen`
inline constexpr int kStageEntry = 0;
inline constexpr int kWidenEntry = 1;  // none for f32 weights
inline constexpr int kEpilogueEntry = 2;

// Panels that the widest entry for a block of `rows` rows takes at once; the narrower ones halve it.
// Few rows leave accumulators free, and several panels keep more cache lines on their way.
constexpr int WidestPanels(int rows) {
  if (rows == 1) return 4;
  return rows <= 3 ? 2 : 1;
}
static_assert(WidestPanels(1) <= kRowBlock && 3 * WidestPanels(3) <= kRowBlock);

// rows in 1..kRowBlock; panels a power of two up to WidestPanels(rows), 1 for widened weights.
constexpr int MicroEntry(WeightForm form, int rows, int panels) {
  constexpr int first = 3;
  if (form == WeightForm::kWidened) return first + rows - 1;
  if (panels == 1) return first + kRowBlock + rows - 1;
  constexpr int wide = first + 2 * kRowBlock;
  if (rows == 1) return wide + (panels == 4 ? 1 : 0);
  return wide + rows;
}
static_assert(MicroEntry(WeightForm::kPacked, 3, 2) < kMaxEntries);

// TileFunction of every emitter that provides these entries.
void RunPanels(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
