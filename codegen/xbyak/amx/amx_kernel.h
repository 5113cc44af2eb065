// Which specs AMX multiplies, and their entries.
#pragma once

#include <optional>

#include "amx_code.h"
#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// What `spec` needs of a target to be multiplied by matrix tiles; nothing where it cannot be.
std::optional<Feature> TileFeature(const ir::KernelSpec& spec);

void AssembleTiles(AmxCode& code, EmittedKernel& kernel);
// The same of quantized weights, by floats and by rows of codes. Of the latter, what few rows take is there already,
// and with it the epilogue.
void AssembleCodeTiles(AmxCode& code, EmittedKernel& kernel);
void AssembleRowInt8Tiles(AmxCode& code, EmittedKernel& kernel);

}  // namespace clikart::codegen
