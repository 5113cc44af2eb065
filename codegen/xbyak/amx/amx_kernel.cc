#include "amx_kernel.h"

#include "clikart/ir/activation.h"
#include "code_tile_driver.h"
#include "integer_sums.h"
#include "panel_driver.h"
#include "row_int8_tile_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

std::optional<Feature> TileFeature(const ir::KernelSpec& spec) {
  if (spec.contraction == ir::Contraction::kInteger) {
    // Deeper sums leave int32; vectors add their blocks in int64.
    if (spec.interleave != 4 || NeedsInt64(spec)) return std::nullopt;
    return Feature::kAmxInt8;
  }
  switch (spec.product) {
    case ir::Product::kTileBf16:
      return Feature::kAmxBf16;
    case ir::Product::kTileF16:
      return Feature::kAmxFp16;
    case ir::Product::kTileInt8:
      return Feature::kAmxInt8;
    default:
      return std::nullopt;
  }
}

namespace {

// What all kernels of tiles have.
void AssembleConfiguration(AmxCode& code, EmittedKernel& kernel) {
  kernel.entry_offsets[kTileConfigureEntry] = code.Configure();
  kernel.entry_offsets[kTileReleaseEntry] = code.Release();
}

void AssembleEpilogue(AmxCode& code, EmittedKernel& kernel) {
  kernel.entry_offsets[kEpilogueEntry] = code.Epilogue(kernel.spec, ir::ProgramOf(kernel.spec.activation));
}

void AssembleProducts(AmxCode& code, TileAhead ahead, EmittedKernel& kernel) {
  for (int row_tiles = 1; row_tiles <= kMostRowTiles; ++row_tiles) {
    for (int panels = 1; panels <= kMostPanelTiles; ++panels) {
      const int32_t entry = code.Product(kernel.spec, row_tiles, panels, ahead);
      kernel.entry_offsets[TileProductEntry(row_tiles, panels, ahead)] = entry;
    }
  }
}

}  // namespace

void AssembleTiles(AmxCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  if (spec.contraction == ir::Contraction::kInteger) {
    kernel.entry_offsets[kStageEntry] = code.StageCodes(spec.x, Multiply::kDot);
  }
  AssembleEpilogue(code, kernel);
  AssembleConfiguration(code, kernel);
  for (const TileAhead ahead : {TileAhead::kStream, TileAhead::kShare}) AssembleProducts(code, ahead, kernel);
}

void AssembleCodeTiles(AmxCode& code, EmittedKernel& kernel) {
  const CodeFormat format(kernel.spec);
  AssembleEpilogue(code, kernel);
  AssembleConfiguration(code, kernel);
  kernel.entry_offsets[kWidenEntry] = code.PairCodes(format);
  kernel.entry_offsets[kTileGroupEntry] = code.AddTileGroup(format.scheme);
  AssembleProducts(code, TileAhead::kNone, kernel);
}

void AssembleRowInt8Tiles(AmxCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  AssembleConfiguration(code, kernel);
  kernel.entry_offsets[kUnpackTilesEntry] = code.UnpackTiles(spec);
  kernel.entry_offsets[kTileGroupEntry] = code.AddTileSums(spec);
  if (spec.scheme->bits < 8) return AssembleProducts(code, TileAhead::kNone, kernel);
  // Bytes are multiplied where they lie.
  for (const TileAhead ahead : {TileAhead::kStream, TileAhead::kShare}) AssembleProducts(code, ahead, kernel);
}

}  // namespace clikart::codegen
