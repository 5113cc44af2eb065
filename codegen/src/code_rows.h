// A launch's rows as kernels of rule 3 multiply them, made once for all tiles: f32 in each order in which weight rows
// sum them, and the sums of their groups where the scheme has a minimum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// Where is what of an order, in bytes on cache lines.
class CodeRowsLayout {
 public:
  CodeRowsLayout(const ir::KernelSpec& spec, int64_t rows);

  int64_t row_stride() const { return row_stride_; }
  int64_t sums_at() const { return sums_at_; }  // f32 [group][row]
  int64_t bytes() const { return bytes_; }

 private:
  int64_t row_stride_;
  int64_t sums_at_;
  int64_t bytes_;
};

// PreparedBytes and PrepareRows of these kernels (clikart/codegen/driver.h). No bytes: tiles multiply x as it lies.
int64_t CodeRowsBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows);
void MakeCodeRows(const KernelImage& kernel, const PrepareArgs& args);

}  // namespace clikart::codegen
