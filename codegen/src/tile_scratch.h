// Where the panel driver keeps what in a tile's scratch memory.
#pragma once

#include <cstdint>

#include "clikart/codegen/schedule.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

class TileScratch {
 public:
  TileScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

  bool staged() const { return staged_; }  // rows are copied to scratch, as f32
  bool widens() const { return widens_; }  // panels too
  int64_t row_stride() const { return row_stride_; }
  // Accumulators of all panels are kept, for another depth block; else those of one register tile's panels.
  bool keeps_accumulators() const { return keeps_accumulators_; }
  int64_t accumulator_panel_stride() const { return accumulator_panel_stride_; }

  // Byte offsets of the regions, each on a cache line.
  int64_t rows_at() const { return 0; }
  int64_t panel_at() const { return panel_at_; }
  int64_t accumulators_at() const { return accumulators_at_; }
  int64_t bytes() const { return bytes_; }

 private:
  bool staged_;
  bool widens_;
  bool keeps_accumulators_;
  int64_t row_stride_;
  int64_t accumulator_panel_stride_;
  int64_t panel_at_;
  int64_t accumulators_at_;
  int64_t bytes_;
};

}  // namespace clikart::codegen
