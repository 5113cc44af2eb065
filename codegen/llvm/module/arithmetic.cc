// Operations that some instruction sets lack.

#include "kernel_builder.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace clikart::codegen::llvm_module {
namespace {

constexpr int kFmaLanes = 4;  // of the function for emulated ones

}  // namespace

Value* KernelBuilder::FmaInPlace(Value* a, Value* b, Value* c) {
  if (!isa_.fma) return EmulatedFma(a, b, c);
  return CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* KernelBuilder::Fma(Value* a, Value* b, Value* c) {
  if (isa_.fma) return FmaInPlace(a, b, c);
  const Values as = Split(a, kFmaLanes), bs = Split(b, kFmaLanes), cs = Split(c, kFmaLanes);
  Values results;
  for (size_t i = 0; i < as.size(); ++i) results.push_back(CreateCall(FmaFunction(), {as[i], bs[i], cs[i]}));
  return Join(results);
}

// In doubles the product of two floats is exact, the sum is not. Rounding it to odd (an inexact sum gets a last
// bit of 1) lets the second rounding, to float, see on which side of a tie the sum lies: 53 bits are two more than
// twice enough, so the result is what one rounding gives (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums: proved algorithms using rounding to odd").
Value* KernelBuilder::EmulatedFma(Value* a, Value* b, Value* c) {
  constexpr int kLanes = 2;
  llvm::Type* const doubles = llvm::FixedVectorType::get(getDoubleTy(), kLanes);
  llvm::Type* const longs = llvm::FixedVectorType::get(getInt64Ty(), kLanes);
  const Values as = Split(a, kLanes), bs = Split(b, kLanes), cs = Split(c, kLanes);
  Values results;
  for (size_t i = 0; i < as.size(); ++i) {
    Value* const product = CreateFMul(CreateFPExt(as[i], doubles), CreateFPExt(bs[i], doubles));
    Value* const addend = CreateFPExt(cs[i], doubles);
    // The sum and its error (Knuth's two-sum).
    Value* const sum = CreateFAdd(product, addend);
    Value* const addend_part = CreateFSub(sum, product);
    Value* const product_part = CreateFSub(sum, addend_part);
    Value* const error = CreateFAdd(CreateFSub(product, product_part), CreateFSub(addend, addend_part));
    // Ordered: an infinite or NaN sum, whose error is NaN, stays as it is.
    Value* const inexact = CreateZExt(CreateFCmpONE(error, llvm::Constant::getNullValue(doubles)), longs);
    Value* const bits = CreateBitCast(sum, longs);
    // Towards zero where the error points there, then odd.
    Value* const opposite = CreateAnd(CreateLShr(CreateXor(bits, CreateBitCast(error, longs)), 63), inexact);
    Value* const odd = CreateOr(CreateSub(bits, opposite), inexact);
    results.push_back(CreateFPTrunc(CreateBitCast(odd, doubles), Floats(kLanes)));
  }
  return Join(results);
}

llvm::Function* KernelBuilder::FmaFunction() {
  if (fma_ != nullptr) return fma_;
  const InsertPointGuard guard(*this);
  llvm::Type* const floats = Floats(kFmaLanes);
  auto* const type = llvm::FunctionType::get(floats, {floats, floats, floats}, false);
  fma_ = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, "fma", module_);
  fma_->setDoesNotThrow();
  fma_->addFnAttr(llvm::Attribute::NoInline);
  fma_->setAlignment(llvm::Align(16));
  SetInsertPoint(llvm::BasicBlock::Create(getContext(), "start", fma_));
  CreateRet(EmulatedFma(fma_->getArg(0), fma_->getArg(1), fma_->getArg(2)));
  return fma_;
}

Value* KernelBuilder::ToInt(Value* value) {
  const int count = LanesOf(value);
  // fptosi truncates and leaves open what does not fit; the instruction says both.
  if (count == 16 && isa_.masks) {
    Value* const all = getInt16(0xffff);
    Value* const current_rounding = getInt32(4);
    return CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
                           {value, llvm::Constant::getNullValue(Ints(count)), all, current_rounding});
  }
  if (count == 8 && isa_.lanes >= 8) return CreateIntrinsic(llvm::Intrinsic::x86_avx_cvt_ps2dq_256, {}, {value});
  Values results;
  for (Value* const piece : Split(value, 4)) {
    results.push_back(CreateIntrinsic(llvm::Intrinsic::x86_sse2_cvtps2dq, {}, {piece}));
  }
  return Join(results);
}

}  // namespace clikart::codegen::llvm_module
