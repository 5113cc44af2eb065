#include "program.h"

namespace clikart::codegen::llvm_module {
namespace {

// Values are kept as f32 vectors; integer operations look at their bits.
class Lowering {
 public:
  Lowering(KernelBuilder& build, int count) : build_(build), count_(count) {}

  Value* Lower(const ir::Instruction& op, const Values& values) {
    Value* const a = values[op.a];
    Value* const b = values[op.b];
    switch (op.op) {
      case ir::Op::kConst:
        return build_.FloatBits(op.imm, count_);
      case ir::Op::kAdd:
        return build_.CreateFAdd(a, b);
      case ir::Op::kSub:
        return build_.CreateFSub(a, b);
      case ir::Op::kMul:
        return build_.CreateFMul(a, b);
      case ir::Op::kDiv:
        return build_.CreateFDiv(a, b);
      case ir::Op::kFma:
        return build_.Fma(a, b, values[op.c]);
      case ir::Op::kMax:
        return build_.CreateSelect(build_.CreateFCmpOGT(a, b), a, b);
      case ir::Op::kMin:
        return build_.CreateSelect(build_.CreateFCmpOLT(a, b), a, b);
      case ir::Op::kLess:
        return Mask(build_.CreateFCmpOLT(a, b));
      case ir::Op::kLessEq:
        return Mask(build_.CreateFCmpOLE(a, b));
      case ir::Op::kIsNan:
        return Mask(build_.CreateFCmpUNO(a, a));
      case ir::Op::kSelect:
        return build_.CreateSelect(build_.CreateICmpSLT(Int(a), build_.Bits(0, count_)), b, values[op.c]);
      case ir::Op::kAnd:
        return Float(build_.CreateAnd(Int(a), Int(b)));
      case ir::Op::kOr:
        return Float(build_.CreateOr(Int(a), Int(b)));
      case ir::Op::kXor:
        return Float(build_.CreateXor(Int(a), Int(b)));
      case ir::Op::kAndNot:
        return Float(build_.CreateAnd(build_.CreateNot(Int(a)), Int(b)));
      case ir::Op::kIntAdd:
        return Float(build_.CreateAdd(Int(a), Int(b)));
      case ir::Op::kIntSub:
        return Float(build_.CreateSub(Int(a), Int(b)));
      case ir::Op::kShl:
        return Float(build_.CreateShl(Int(a), op.imm));
      case ir::Op::kShr:
        return Float(build_.CreateLShr(Int(a), op.imm));
      case ir::Op::kSar:
        return Float(build_.CreateAShr(Int(a), op.imm));
      case ir::Op::kToInt:
        return Float(build_.ToInt(a));
      case ir::Op::kToFloat:
        return build_.CreateSIToFP(Int(a), build_.Floats(count_));
    }
    return nullptr;
  }

 private:
  Value* Int(Value* value) { return build_.CreateBitCast(value, build_.Ints(count_)); }
  Value* Float(Value* value) { return build_.CreateBitCast(value, build_.Floats(count_)); }
  Value* Mask(Value* condition) { return Float(build_.CreateSExt(condition, build_.Ints(count_))); }

  KernelBuilder& build_;
  const int count_;
};

}  // namespace

Value* LowerProgram(KernelBuilder& build, const ir::Program& program, std::span<Value* const> inputs) {
  Lowering lowering(build, KernelBuilder::LanesOf(inputs.front()));
  Values values(inputs.begin(), inputs.end());
  for (const ir::Instruction& instruction : program.instructions) {
    values.push_back(lowering.Lower(instruction, values));
  }
  return values[program.result];
}

}  // namespace clikart::codegen::llvm_module
