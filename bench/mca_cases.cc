#include "mca_cases.h"

#include "clikart/codegen/product.h"
#include "clikart/ir/quant_scheme.h"

namespace clikart::bench {
namespace {

using codegen::IsaLevel;
using ir::DType;

ir::KernelSpec Dense(DType x, DType w, DType y) {
  ir::KernelSpec spec;
  spec.n = 6144;
  spec.k = 4096;
  spec.x = x;
  spec.w = w;
  spec.y = y;
  return spec;
}

McaCase Float(DType dtype, IsaLevel level, McaGoals goals) { return {Dense(dtype, dtype, dtype), level, goals}; }

McaCase Integer(IsaLevel level, McaGoals goals) {
  McaCase integer{Dense(DType::kUInt8, DType::kInt8, DType::kFloat32), level, goals};
  integer.spec.contraction = ir::Contraction::kInteger;
  return integer;
}

McaCase Codes(const char* scheme, IsaLevel level, McaGoals goals,
              ir::Contraction contraction = ir::Contraction::kWeightOnly) {
  McaCase codes{Dense(DType::kFloat32, DType::kInt8, DType::kFloat32), level, goals};
  codes.spec.contraction = contraction;
  codes.spec.scheme = ir::QuantScheme::Parse(scheme).value();
  codes.spec.w = codes.spec.scheme->CodeDType();
  return codes;
}

}  // namespace

std::vector<McaCase> McaCases() {
  constexpr McaGoals kNone;
  constexpr McaGoals kFma{.share = 95, .products = {}};
  constexpr McaGoals kDot{.share = 90, .products = {}};
  constexpr McaGoals kTiles{.share = {}, .products = 1};
  return {
      Float(DType::kFloat32, IsaLevel::kAvx2, kNone),
      Float(DType::kFloat16, IsaLevel::kAvx2, kNone),
      Float(DType::kBFloat16, IsaLevel::kAvx2, kNone),
      Float(DType::kFloat32, IsaLevel::kAvx512, kFma),
      Float(DType::kFloat16, IsaLevel::kAvx512, kNone),
      Float(DType::kBFloat16, IsaLevel::kAvx512, kNone),
      Float(DType::kBFloat16, IsaLevel::kAvx512Bf16, kDot),
      Float(DType::kBFloat16, IsaLevel::kAmx, kTiles),
      Codes("int4_g32", IsaLevel::kAvx2, kNone),
      Codes("int4_g32", IsaLevel::kAvx512, kFma),
      Codes("int4_g32", IsaLevel::kAmx, kTiles, ir::Contraction::kRowInt8),
      Codes("int8", IsaLevel::kAmx, kTiles, ir::Contraction::kRowInt8),
      Integer(IsaLevel::kAvx2, kNone),
      Integer(IsaLevel::kAvxVnni, kDot),
      Integer(IsaLevel::kAvx512Vnni, kDot),
      Integer(IsaLevel::kAmx, kTiles),
  };
}

void SuitTarget(ir::KernelSpec& spec, const codegen::Target& target) {
  spec.product = codegen::ProductFor(spec, target, codegen::MathMode::kNative);
  spec.interleave = codegen::InterleaveFor(spec, target, codegen::MathMode::kNative);
}

}  // namespace clikart::bench
