#include "amx_kernel.h"

#include "clikart/ir/activation.h"
#include "code_tile_driver.h"
#include "integer_sums.h"
#include "panel_driver.h"
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
    default:
      return std::nullopt;
  }
}

namespace {

// What all kernels of tiles have.
void AssembleFrame(AmxCode& code, EmittedKernel& kernel) {
  auto& entries = kernel.entry_offsets;
  entries[kEpilogueEntry] = code.Epilogue(kernel.spec, ir::ProgramOf(kernel.spec.activation));
  entries[kTileConfigureEntry] = code.Configure();
  entries[kTileReleaseEntry] = code.Release();
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
  AssembleFrame(code, kernel);
  for (const TileAhead ahead : {TileAhead::kStream, TileAhead::kShare}) AssembleProducts(code, ahead, kernel);
}

void AssembleCodeTiles(AmxCode& code, EmittedKernel& kernel) {
  const CodeFormat format(kernel.spec);
  AssembleFrame(code, kernel);
  kernel.entry_offsets[kWidenEntry] = code.PairCodes(format);
  kernel.entry_offsets[kTileGroupEntry] = code.AddTileGroup(format.scheme);
  AssembleProducts(code, TileAhead::kNone, kernel);
}

}  // namespace clikart::codegen
