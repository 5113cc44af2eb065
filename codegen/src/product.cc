#include "clikart/codegen/product.h"

namespace clikart::codegen {

ir::Product ProductFor(const ir::KernelSpec& spec, const Target& target, MathMode math) {
  if (math == MathMode::kExact || spec.contraction != ir::Contraction::kFloat || spec.x != spec.w) {
    return ir::Product::kFma;
  }
  if (spec.x == ir::DType::kBFloat16 && target.Has(Feature::kAvx512Bf16)) return ir::Product::kDotBf16;
  return ir::Product::kFma;
}

int InterleaveFor(ir::Contraction contraction, ir::DType w, const Target& target, MathMode math) {
  if (contraction == ir::Contraction::kInteger) return 4;
  if (contraction != ir::Contraction::kFloat) return 1;
  switch (w) {
    case ir::DType::kBFloat16:
      return 2;  // widened from pairs as fast as from single elements
    case ir::DType::kFloat16:
      return target.Has(Feature::kAmxFp16) && math == MathMode::kNative ? 2 : 1;
    default:
      return 1;
  }
}

}  // namespace clikart::codegen
