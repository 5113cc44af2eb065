#include "clikart/codegen/driver.h"

#include "code_driver.h"
#include "code_tile_driver.h"
#include "depthwise_driver.h"
#include "panel_driver.h"
#include "row_int8_driver.h"
#include "row_int8_tile_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

std::span<const Driver> Drivers() {
  static constexpr Driver drivers[] = {{"panels", &RunPanels},
                                       {"depthwise", &RunDepthwise},
                                       {"tiles", &RunTiles},
                                       {"codes", &RunCodes},
                                       {"row_int8", &RunRowInt8},
                                       {"code_tiles", &RunCodeTiles},
                                       {"row_int8_tiles", &RunRowInt8Tiles}};
  return drivers;
}

namespace {

// The portable emitter's kernels make codes of rows as they sum them.
bool Prepares(const KernelImage& kernel) {
  return kernel.spec.contraction == ir::Contraction::kRowInt8 && kernel.entries[kQuantizeEntry] != nullptr;
}

}  // namespace

int64_t PreparedBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows) {
  return Prepares(kernel) ? RowCodesBytes(kernel, codes, rows) : 0;
}

int64_t PrepareScratchBytes(const KernelImage& kernel) {
  return Prepares(kernel) ? RowCodesScratchBytes(kernel.spec) : 0;
}

void PrepareRows(const KernelImage& kernel, const PrepareArgs& args) {
  if (Prepares(kernel) && args.count > 0) MakeRowCodes(kernel, args);
}

}  // namespace clikart::codegen
