#include "clikart/codegen/driver.h"

#include "code_driver.h"
#include "code_rows.h"
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

// What a kernel's tiles read in place of x. The portable emitter's read x itself, and so do matrix tiles of bf16.
enum class Rows { kAsTheyLie, kFloats, kCodes };

Rows RowsOf(const KernelImage& kernel) {
  const ir::Contraction contraction = kernel.spec.contraction;
  if (contraction == ir::Contraction::kRowInt8 && kernel.entries[kQuantizeEntry] != nullptr) return Rows::kCodes;
  const bool vectors = kernel.schedule.matrix_rows == 0 && kernel.entries[kStageEntry] != nullptr;
  return contraction == ir::Contraction::kWeightOnly && vectors ? Rows::kFloats : Rows::kAsTheyLie;
}

}  // namespace

int64_t PreparedBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows) {
  switch (RowsOf(kernel)) {
    case Rows::kAsTheyLie:
      return 0;
    case Rows::kFloats:
      return CodeRowsBytes(kernel, codes, rows);
    case Rows::kCodes:
      return RowCodesBytes(kernel, codes, rows);
  }
  return 0;
}

int64_t PrepareScratchBytes(const KernelImage& kernel) {
  return RowsOf(kernel) == Rows::kCodes ? RowCodesScratchBytes(kernel.spec) : 0;
}

void PrepareRows(const KernelImage& kernel, const PrepareArgs& args) {
  if (args.count == 0) return;
  const Rows rows = RowsOf(kernel);
  if (rows == Rows::kFloats) MakeCodeRows(kernel, args);
  if (rows == Rows::kCodes) MakeRowCodes(kernel, args);
}

}  // namespace clikart::codegen
