// Elements in memory and as f32: loads, conversions with one rounding, stores that end where the data ends.

#include "clikart/ir/panel_layout.h"
#include "kernel_builder.h"
#include "llvm/IR/Function.h"

namespace clikart::codegen::llvm_module {
namespace {

using ir::DType;

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;

}  // namespace

Value* KernelBuilder::LoadWidened(DType dtype, Value* from, int count) {
  return Widen(dtype, LoadVector(Elements(dtype, count), from));
}

Value* KernelBuilder::LoadFirst(DType dtype, Value* from, int count, int width) {
  if (count == width) return LoadWidened(dtype, from, width);
  llvm::Type* const type = Elements(dtype, width);
  if (isa_.masks || (lanes() >= 8 && dtype == DType::kFloat32)) {
    std::vector<llvm::Constant*> mask;
    for (int lane = 0; lane < width; ++lane) mask.push_back(getInt1(lane < count));
    return Widen(dtype, CreateMaskedLoad(type, from, llvm::Align(1), llvm::ConstantVector::get(mask)));
  }
  Value* elements = llvm::Constant::getNullValue(type);
  llvm::Type* const element = type->getScalarType();
  for (int lane = 0; lane < count; ++lane) {
    Value* const place = At(from, lane * static_cast<int64_t>(ir::SizeOf(dtype)));
    elements = CreateInsertElement(elements, CreateAlignedLoad(element, place, llvm::Align(1)), getInt64(lane));
  }
  return Widen(dtype, elements);
}

Values KernelBuilder::LoadPanelLanes(llvm::Type* type, Value* from) {
  Values vectors;
  for (int64_t lane = 0; lane < ir::kPanelLanes; lane += lanes()) {
    vectors.push_back(LoadVector(type, At(from, lane * int64_t{sizeof(float)})));
  }
  return vectors;
}

void KernelBuilder::StorePanelLanes(const Values& vectors, Value* to) {
  for (size_t i = 0; i < vectors.size(); ++i) {
    StoreVector(vectors[i], At(to, static_cast<int64_t>(i) * lanes() * int64_t{sizeof(float)}));
  }
}

Value* KernelBuilder::Widen(DType dtype, Value* elements) {
  const int count = LanesOf(elements);
  switch (dtype) {
    case DType::kFloat16:
      return HalfToFloat(elements);
    case DType::kBFloat16:
      return CreateBitCast(CreateShl(CreateZExt(elements, Ints(count)), 16), Floats(count));
    default:
      return elements;
  }
}

Value* KernelBuilder::Round(DType dtype, Value* value) {
  const int count = LanesOf(value);
  if (dtype == DType::kFloat16) return FloatToHalf(value);
  if (dtype != DType::kBFloat16) return value;
  // To nearest even by integers, which keeps subnormals; NaNs become quiet instead of being rounded.
  Value* const bits = CreateBitCast(value, Ints(count));
  Value* const odd = CreateAnd(CreateLShr(bits, 16), Bits(1, count));
  Value* const rounded = CreateLShr(CreateAdd(CreateAdd(bits, Bits(0x7fff, count)), odd), 16);
  Value* const quiet = CreateLShr(CreateOr(bits, Bits(0x400000, count)), 16);
  Value* const chosen = CreateSelect(CreateFCmpUNO(value, value), quiet, rounded);
  return CreateTrunc(chosen, Elements(dtype, count));
}

Value* KernelBuilder::HalfToFloat(Value* halves) {
  const int count = LanesOf(halves);
  if (isa_.f16c) {
    llvm::Type* const type = llvm::FixedVectorType::get(getHalfTy(), count);
    return CreateFPExt(CreateBitCast(halves, type), Floats(count));
  }
  // Exponent and fraction at f32's place, then times 2^112: exact, for subnormals too, which the product
  // makes normal. Infinities and NaNs get the largest exponent.
  Value* const bits = CreateZExt(halves, Ints(count));
  Value* const sign = CreateShl(CreateAnd(bits, Bits(0x8000, count)), 16);
  Value* const magnitude = CreateShl(CreateAnd(bits, Bits(0x7fff, count)), 13);
  Value* const scaled = CreateFMul(CreateBitCast(magnitude, Floats(count)), FloatBits(0x77800000, count));
  Value* const special = CreateOr(magnitude, Bits(kInfinity, count));
  Value* const is_special = CreateICmpSGT(magnitude, Bits(0x0f7fffff, count));
  Value* const unsigned_bits = CreateSelect(is_special, special, CreateBitCast(scaled, Ints(count)));
  return CreateBitCast(CreateOr(unsigned_bits, sign), Floats(count));
}

Value* KernelBuilder::FloatToHalf(Value* value) {
  const int count = LanesOf(value);
  if (isa_.f16c) {
    llvm::Type* const type = llvm::FixedVectorType::get(getHalfTy(), count);
    return CreateBitCast(CreateFPTrunc(value, type), Elements(DType::kFloat16, count));
  }
  Value* const bits = CreateBitCast(value, Ints(count));
  Value* const magnitude = CreateAnd(bits, Bits(~kSign, count));
  Value* const sign = CreateLShr(CreateAnd(bits, Bits(kSign, count)), 16);
  // Normal halves: round to nearest even by integers; a carry runs into the exponent, up to infinity.
  Value* const odd = CreateAnd(CreateLShr(magnitude, 13), Bits(1, count));
  Value* const rebased = CreateAdd(magnitude, Bits((0u - (112u << 23)) + 0xfff, count));
  Value* const normal = CreateLShr(CreateAdd(rebased, odd), 13);
  // Below 2^-14 halves are multiples of 2^-24: adding 0.5, whose last bit is worth as much, rounds to them.
  Value* const half = FloatBits(0x3f000000, count);
  Value* const shifted = CreateFAdd(CreateBitCast(magnitude, Floats(count)), half);
  Value* const subnormal = CreateSub(CreateBitCast(shifted, Ints(count)), Bits(0x3f000000, count));
  // From 65536 on, infinity; NaNs are quiet.
  Value* const nan =
      CreateSelect(CreateICmpSGT(magnitude, Bits(kInfinity, count)), Bits(0x7e00, count), Bits(0x7c00, count));
  Value* result = CreateSelect(CreateICmpSGT(Bits(0x38800000, count), magnitude), subnormal, normal);
  result = CreateSelect(CreateICmpSGT(magnitude, Bits(0x477fffff, count)), nan, result);
  return CreateTrunc(CreateOr(result, sign), Elements(DType::kFloat16, count));
}

void KernelBuilder::StoreFirst(Value* elements, Value* to, Value* count) {
  const int lanes = LanesOf(elements);
  if (isa_.masks) {
    std::vector<llvm::Constant*> lane_numbers;
    for (int lane = 0; lane < lanes; ++lane) lane_numbers.push_back(getInt32(lane));
    Value* const counts = CreateVectorSplat(lanes, CreateTrunc(count, getInt32Ty()));
    CreateMaskedStore(elements, to, llvm::Align(1), CreateICmpSGT(counts, llvm::ConstantVector::get(lane_numbers)));
    return;
  }
  // One by one, from a copy on the stack.
  llvm::Type* const element = elements->getType()->getScalarType();
  const int64_t size = element->getPrimitiveSizeInBits() / 8;
  Value* const copy = Scratch(elements->getType());
  StoreVector(elements, copy);
  Value* const bytes = CreateMul(count, getInt64(size));
  Loop("store", {getInt64(0)}, [&](const Values& at) {
    CreateAlignedStore(CreateAlignedLoad(element, At(copy, at[0]), llvm::Align(1)), At(to, at[0]), llvm::Align(1));
    Value* const next = CreateAdd(at[0], getInt64(size));
    return Turn{{next}, CreateICmpSLT(next, bytes)};
  });
}

}  // namespace clikart::codegen::llvm_module
