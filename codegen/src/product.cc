#include "clikart/codegen/product.h"

namespace clikart::codegen {

ir::Product ProductFor(const ir::KernelSpec&, const Target&, MathMode) { return ir::Product::kFma; }

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
