#include "amx_kernel.h"

#include "clikart/ir/activation.h"
#include "integer_sums.h"
#include "panel_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

std::optional<Feature> TileFeature(const ir::KernelSpec& spec) {
  if (spec.quantized_weights()) return std::nullopt;
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
    default:
      return std::nullopt;
  }
}

void AssembleTiles(AmxCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  auto& entries = kernel.entry_offsets;
  if (spec.contraction == ir::Contraction::kInteger) entries[kStageEntry] = code.StageCodes(spec.x, Multiply::kDot);
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  entries[kTileConfigureEntry] = code.Configure();
  entries[kTileReleaseEntry] = code.Release();
  for (int row_tiles = 1; row_tiles <= kMostRowTiles; ++row_tiles) {
    for (int panels = 1; panels <= kMostPanelTiles; ++panels) {
      for (const TileAhead ahead : {TileAhead::kStream, TileAhead::kShare}) {
        entries[TileProductEntry(row_tiles, panels, ahead)] = code.Product(spec, row_tiles, panels, ahead);
      }
    }
  }
}

}  // namespace clikart::codegen
