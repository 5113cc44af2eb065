// Steps of weights and rows as they are multiplied, and the multiplication.

#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace clikart::codegen::llvm_module {
namespace {

// Pairs of 16-bit codes, one pair a lane.
Value* Words(KernelBuilder& build, Value* lanes) {
  return build.CreateBitCast(lanes, llvm::FixedVectorType::get(build.getInt16Ty(), 2 * KernelBuilder::LanesOf(lanes)));
}

// The sum of the products of each lane's two codes: exact, as neither uses all of its 16 bits.
Value* MultiplyWords(KernelBuilder& build, Value* x, Value* w) {
  switch (build.lanes()) {
    case 16:
      return build.CreateIntrinsic(llvm::Intrinsic::x86_avx512_pmaddw_d_512, {}, {x, w});
    case 8:
      return build.CreateIntrinsic(llvm::Intrinsic::x86_avx2_pmadd_wd, {}, {x, w});
    default:
      return build.CreateIntrinsic(llvm::Intrinsic::x86_sse2_pmadd_wd, {}, {x, w});
  }
}

// Of four codes of one byte each, those of the weight without a sign.
Value* MultiplyBytes(KernelBuilder& build, Value* x, Value* w) {
  const auto count = static_cast<unsigned>(build.lanes());
  llvm::Type* const bytes = llvm::FixedVectorType::get(build.getInt8Ty(), 4 * count);
  const auto pairs = build.lanes() == 16  ? llvm::Intrinsic::x86_avx512_pmaddubs_w_512
                     : build.lanes() == 8 ? llvm::Intrinsic::x86_avx2_pmadd_ub_sw
                                          : llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128;
  Value* const sums = build.CreateIntrinsic(pairs, {}, {build.CreateBitCast(w, bytes), build.CreateBitCast(x, bytes)});
  return MultiplyWords(build, sums, build.CreateVectorSplat(2 * count, build.getInt16(1)));
}

// Codes of a unit without their signs, each in a byte or a word of its own.
Value* DecodePart(KernelBuilder& build, const Packing& weights, Value* unit, int part) {
  const int bytes_of_code = 4 / weights.step;
  const uint32_t code = (1u << weights.code_bits) - 1;
  const uint32_t mask = bytes_of_code == 1 ? code * 0x01010101u : code * 0x00010001u;
  const int lanes = KernelBuilder::LanesOf(unit);
  Value* const shifted = part == 0 ? unit : build.CreateLShr(unit, static_cast<uint64_t>(part * weights.code_bits));
  Value* const codes = mask == ~0u ? shifted : build.CreateAnd(shifted, build.Bits(mask, lanes));
  return weights.multiply == Multiply::kWords ? Words(build, codes) : codes;
}

Value* Dot(KernelBuilder& build, Value* without_sign, Value* with_sign, Value* sum) {
  const auto dot =
      build.lanes() == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256;
  return build.CreateIntrinsic(dot, {}, {sum, without_sign, with_sign});
}

}  // namespace

int64_t Packing::StepBytes() const {
  constexpr int64_t kUnitBytes = ir::kPanelLanes * int64_t{sizeof(uint32_t)};
  if (code_bits > 0) return kUnitBytes / interleave;
  return ir::kPanelLanes * step * static_cast<int64_t>(ir::SizeOf(dtype));
}

Values LoadPacked(KernelBuilder& build, const Packing& weights, Value* from) {
  const int lanes = build.lanes();
  // A lane is one element, or as many as make four bytes.
  const bool narrow = weights.multiply == Multiply::kFma && weights.interleave == 1;
  llvm::Type* const type = narrow ? build.Elements(weights.dtype, lanes) : build.Ints(lanes);
  const int64_t lane_bytes = weights.interleave * weights.StepBytes() / ir::kPanelLanes;
  Values vectors;
  for (int lane = 0; lane < ir::kPanelLanes; lane += lanes) {
    vectors.push_back(build.LoadVector(type, build.At(from, lane * lane_bytes)));
  }
  return vectors;
}

Values Decode(KernelBuilder& build, const Packing& weights, const Values& packed, int step) {
  Values decoded;
  for (Value* const vector : packed) {
    const int lanes = KernelBuilder::LanesOf(vector);
    if (weights.code_bits > 0) {
      decoded.push_back(DecodePart(build, weights, vector, step));
    } else if (weights.multiply == Multiply::kDot) {
      decoded.push_back(vector);
    } else if (weights.multiply == Multiply::kWords) {
      // Of four codes the even ones, then the odd ones, with their signs.
      Value* const words = Words(build, vector);
      const bool ready = weights.interleave == 1;
      Value* const high = ready || step == 1 ? words : build.CreateShl(words, 8);
      decoded.push_back(ready ? words : build.CreateAShr(high, 8));
    } else if (weights.interleave == 1) {
      decoded.push_back(build.Widen(weights.dtype, vector));
    } else if (weights.dtype == ir::DType::kBFloat16) {
      Value* const high =
          step == 0 ? build.CreateShl(vector, 16) : build.CreateAnd(vector, build.Bits(0xffff0000, lanes));
      decoded.push_back(build.CreateBitCast(high, build.Floats(lanes)));
    } else {
      Value* const low = step == 0 ? vector : build.CreateLShr(vector, 16);
      decoded.push_back(build.Widen(weights.dtype, build.CreateTrunc(low, build.Elements(weights.dtype, lanes))));
    }
  }
  return decoded;
}

llvm::Type* AccumulatorType(KernelBuilder& build, Multiply multiply) {
  return multiply == Multiply::kFma ? build.Floats(build.lanes()) : build.Ints(build.lanes());
}

Value* LoadInput(KernelBuilder& build, Multiply multiply, Value* from) {
  llvm::Type* const type = multiply == Multiply::kFma ? build.getFloatTy() : build.getInt32Ty();
  Value* const splat = build.CreateVectorSplat(build.lanes(), build.CreateAlignedLoad(type, from, llvm::Align(1)));
  return multiply == Multiply::kWords ? Words(build, splat) : splat;
}

Value* MultiplyAdd(KernelBuilder& build, Multiply multiply, Value* x, Value* w, Value* sum, bool in_place) {
  switch (multiply) {
    case Multiply::kFma:
      return in_place ? build.FmaInPlace(x, w, sum) : build.Fma(x, w, sum);
    case Multiply::kWords:
      return build.CreateAdd(sum, MultiplyWords(build, x, w));
    case Multiply::kDot:
      return Dot(build, x, w, sum);
    case Multiply::kRowDot:
      return Dot(build, w, x, sum);
    case Multiply::kBytes:
      return build.CreateAdd(sum, MultiplyBytes(build, x, w));
  }
  return nullptr;
}

}  // namespace clikart::codegen::llvm_module
