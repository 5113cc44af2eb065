// The loop nest of float and integer kernels over packed panels, and the contract with the code it calls.
//
// An emitter provides the entries below as System V functions that take one pointer to the matching
// argument struct. They keep to caller-saved registers and leave the upper vector halves clear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "integer_sums.h"

namespace clikart::codegen {

inline constexpr int kMicroUnroll = 4;     // k steps of the inner loop
inline constexpr int kMostTileRows = 16;   // rows of a register tile, over all emitters
inline constexpr int kMostTilePanels = 4;  // panels, a power of two: more streams than this slow memory down

inline constexpr int64_t kAccumulatorRow = 16 * sizeof(float);  // bytes of a panel's accumulators

// Depth is counted in steps (Schedule::step): four bytes of a row, f32 or as many codes as are multiplied at once.
// Accumulators are f32 or int32.

// Multiplies a block of rows by a run of one panel, or of several neighbouring ones.
struct MicroArgs {
  const std::byte* a = nullptr;  // staged rows
  int64_t a_stride = 0;          // bytes between rows
  const std::byte* b = nullptr;  // first step of the first panel
  int64_t b_stride = 0;          // bytes between panels
  int64_t depth = 0;             // steps, may be 0
  // Where b stands after the last run of kMicroUnroll k steps, and after the last whole packed step.
  const std::byte* unrolled_end = nullptr;
  const std::byte* whole_end = nullptr;
  std::byte* c = nullptr;  // accumulators: [panel][row][16], rows kAccumulatorRow apart
  int64_t c_stride = 0;    // bytes between panels
  int64_t resume = 0;      // 0: start from +0, else from what c holds
  // Each kMicroUnroll k steps the cache lines of as many steps from here on are asked for (packed weights: one
  // such run for each panel, b_stride apart), then this moves by prefetch_step. Any address will do.
  const std::byte* prefetch = nullptr;
  int64_t prefetch_step = 0;
};

// Copies runs of x to what is multiplied: row i from x + i * x_stride, or through the offset table. The last step
// of codes is filled up with anything: weights are zero there.
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

// Widens `steps` steps of a panel to four bytes a lane.
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
  // Integer contractions: the panel's terms, which have the bias; what requantizing takes.
  const PanelTerms* terms = nullptr;
  Requantization requantization;
};

// Entry numbers.
enum class WeightForm : uint8_t { kPacked, kWidened };  // as packed, or made by `widen`
inline constexpr int kStageEntry = 0;
inline constexpr int kWidenEntry = 1;  // none where weights are multiplied as packed
inline constexpr int kEpilogueEntry = 2;

// A register kernel that RunPanels calls: rows by panels of accumulators.
struct MicroKind {
  WeightForm form = WeightForm::kPacked;
  int rows = 1;    // up to kMostTileRows
  int panels = 1;  // a power of two up to kMostTilePanels
};

constexpr int MicroEntry(const MicroKind& kind) {
  constexpr int first = 3;
  int width = 0;  // 1, 2, 4 panels
  while ((1 << width) < kind.panels) ++width;
  const int form = kind.form == WeightForm::kPacked ? 0 : 3;
  return first + (form + width) * kMostTileRows + kind.rows - 1;
}
// Behind those: of what else a kernel has.
inline constexpr int kFirstOtherEntry = MicroEntry({WeightForm::kWidened, kMostTileRows, kMostTilePanels}) + 1;
static_assert(kFirstOtherEntry <= kMaxEntries);

// Bytes of weights on their way from memory while few rows stream them: about twice what a core
// receives in one memory latency. The hardware's own prefetch stops at pages and follows too close.
inline constexpr int64_t kStreamAhead = 8192;

// Panels that a block of `rows` rows takes at once where the weight is streamed: few rows leave accumulators
// free, and several panels keep more cache lines on their way.
int64_t WidestPanels(const Schedule& schedule, int64_t rows);

// Rows of block `i` of so many: nearly the same for all, as a small last one would wait for its own fma chains.
constexpr int64_t RowsOfBlock(int64_t rows, int64_t blocks, int64_t i) {
  return rows / blocks + (i < rows % blocks ? 1 : 0);
}
// The smallest block of more than few_rows rows.
int64_t FewestRowsOfBlock(const Schedule& schedule);

// Those that a kernel of that schedule needs.
std::vector<MicroKind> MicroKinds(const ir::KernelSpec& spec, const Schedule& schedule);

// Calls an entry point, which may change its arguments where its contract says so.
template <typename Args>
void Enter(const KernelImage& kernel, int entry, Args& args) {
  reinterpret_cast<void (*)(Args*)>(const_cast<void*>(kernel.entries[entry]))(&args);
}

// TileFunction of every emitter that provides these entries.
void RunPanels(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
