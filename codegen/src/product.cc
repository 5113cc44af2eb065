#include "clikart/codegen/product.h"

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "code_tile_driver.h"
#include "row_int8_tile_driver.h"

namespace clikart::codegen {
namespace {

// One whole row of a matrix tile; a shorter depth would multiply zeros for the most part.
constexpr int64_t kFewestTileSteps = 32;

// Codes become bf16 numbers, in groups that are whole tiles.
bool DecodesToTiles(const ir::KernelSpec& spec) {
  return spec.x == ir::DType::kBFloat16 && spec.scheme.has_value() && ir::DecodesToBf16(*spec.scheme) &&
         spec.order != ir::InputOrder::kUneven && GroupsFillTiles(*spec.scheme, spec.depth());
}

// compute="int8" by tiles, with dot products for few rows.
bool MultipliesBytesByTiles(const ir::KernelSpec& spec, const Target& target) {
  return target.Has(Feature::kAmxInt8) && target.Has(Feature::kAvx512Vnni) && spec.scheme.has_value() &&
         spec.order != ir::InputOrder::kUneven && GroupsSuitTiles(spec);
}

}  // namespace

ir::Product ProductFor(const ir::KernelSpec& spec, const Target& target, MathMode math) {
  // Sums of integers are exact in either mode.
  if (spec.contraction == ir::Contraction::kRowInt8) {
    return MultipliesBytesByTiles(spec, target) ? ir::Product::kTileInt8 : ir::Product::kFma;
  }
  if (math == MathMode::kExact) return ir::Product::kFma;
  const bool tiles = spec.depth() >= kFewestTileSteps;
  if (spec.contraction == ir::Contraction::kWeightOnly) {
    const bool decodes = tiles && DecodesToTiles(spec);
    return decodes && target.Has(Feature::kAmxBf16) ? ir::Product::kTileBf16 : ir::Product::kFma;
  }
  if (spec.contraction != ir::Contraction::kFloat || spec.x != spec.w) return ir::Product::kFma;
  if (spec.x == ir::DType::kBFloat16) {
    if (tiles && target.Has(Feature::kAmxBf16)) return ir::Product::kTileBf16;
    if (target.Has(Feature::kAvx512Bf16)) return ir::Product::kDotBf16;
  }
  if (spec.x == ir::DType::kFloat16 && tiles && target.Has(Feature::kAmxFp16)) return ir::Product::kTileF16;
  return ir::Product::kFma;
}

int InterleaveFor(const ir::KernelSpec& spec, const Target& target, MathMode math) {
  if (spec.quantized_weights()) return spec.scheme ? ir::CodeInterleave(spec.contraction, *spec.scheme) : 1;
  if (spec.contraction == ir::Contraction::kInteger) return 4;
  if (spec.contraction != ir::Contraction::kFloat) return 1;
  switch (spec.w) {
    case ir::DType::kBFloat16:
      return 2;  // widened from pairs as fast as from single elements
    case ir::DType::kFloat16:
      return target.Has(Feature::kAmxFp16) && math == MathMode::kNative ? 2 : 1;
    default:
      return 1;
  }
}

}  // namespace clikart::codegen
