// Where the panel driver keeps what in a tile's scratch memory.
#pragma once

#include <cstdint>

#include "clikart/codegen/schedule.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {

// The packed weights with a step (Schedule::step) as the unit of depth: four bytes of a staged row, and as many
// or fewer of a lane. Its dtype says no more than a size.
ir::PanelLayout StepLayout(const ir::KernelSpec& spec, const Schedule& schedule);

// Weights are not multiplied as they lie: a step of a lane is smaller than four bytes.
bool Decodes(const ir::KernelSpec& spec, const Schedule& schedule);

// Schedule::few_rows of a register tile that hides the decoding of weights at any number of rows.
inline constexpr int64_t kDecodesAlways = int64_t{1} << 40;

// Rows of x are multiplied as they lie.
bool MultipliesInPlace(const ir::KernelSpec& spec, const Schedule& schedule);

class TileScratch {
 public:
  TileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  bool few() const { return few_; }        // one register tile takes all rows and the whole depth
  bool staged() const { return staged_; }  // rows are copied to scratch, as they are multiplied
  bool widens() const { return widens_; }  // panels too
  int64_t row_stride() const { return row_stride_; }
  // Accumulators of all panels are kept, for another depth block; else those of one register tile's panels.
  bool keeps_accumulators() const { return keeps_accumulators_; }
  int64_t accumulator_panel_stride() const { return accumulator_panel_stride_; }

  // Byte offsets of the regions, each on a cache line.
  int64_t rows_at() const { return 0; }
  int64_t panel_at() const { return panel_at_; }
  int64_t accumulators_at() const { return accumulators_at_; }
  int64_t sums_at() const { return sums_at_; }  // int64 [panel][row][16], where int32 is too small
  int64_t sums_panel_stride() const { return sums_panel_stride_; }
  int64_t bytes() const { return bytes_; }

 private:
  bool few_;
  bool staged_;
  bool widens_;
  bool keeps_accumulators_;
  int64_t row_stride_;
  int64_t accumulator_panel_stride_;
  int64_t panel_at_;
  int64_t accumulators_at_;
  int64_t sums_at_;
  int64_t sums_panel_stride_;
  int64_t bytes_;
};

}  // namespace clikart::codegen
