// A register plan's steps as instructions, one to one.

#include "kernel_code.h"

namespace clikart::codegen {
namespace {

// Predicates of vcmpps: quiet, false for NaN but where they ask for it.
constexpr uint8_t kLessThan = 17;
constexpr uint8_t kLessOrEqual = 18;
constexpr uint8_t kUnordered = 3;

}  // namespace

void KernelCode::TranslateMove(const Step& step, int lanes, int first) {
  const auto slot = [&](const Operand& operand) {
    return ptr[rsp + static_cast<int>(operand.value) * lanes * static_cast<int>(sizeof(float))];
  };
  const auto reg = [&](const Operand& operand) { return Register(first + static_cast<int>(operand.value), lanes); };
  if (step.to.kind == Operand::Kind::kSlot) {
    vmovups(slot(step.to), reg(step.a));
    return;
  }
  const Vector to = reg(step.to);
  switch (step.a.kind) {
    case Operand::Kind::kSlot:
      vmovups(to, slot(step.a));
      break;
    case Operand::Kind::kConstant:
      LoadConstant(to, step.a.value);
      break;
    default:
      vmovaps(to, reg(step.a));
  }
}

void KernelCode::TranslateFma(const Step& step, int lanes, int first) {
  const auto reg = [&](const Operand& operand) { return Register(first + static_cast<int>(operand.value), lanes); };
  const Vector to = reg(step.to);
  // x * y + to, with y where a constant may stand.
  const auto onto_addend = [&](const Operand& x, const Operand& y) {
    if (y.IsRegister()) {
      vfmadd231ps(to, reg(x), reg(y));
    } else {
      vfmadd231ps(to, reg(x), Constant(y.value));
    }
  };
  // to * x + c
  const auto onto_factor = [&](const Operand& x) {
    if (!x.IsRegister()) {
      vfmadd132ps(to, reg(step.c), Constant(x.value));
    } else if (step.c.IsRegister()) {
      vfmadd213ps(to, reg(x), reg(step.c));
    } else {
      vfmadd213ps(to, reg(x), Constant(step.c.value));
    }
  };
  if (step.to == step.c) {
    step.a.IsRegister() ? onto_addend(step.a, step.b) : onto_addend(step.b, step.a);
  } else {
    onto_factor(step.to == step.a ? step.b : step.a);
  }
}

void KernelCode::Translate(const Step& step, int lanes, int first) {
  if (step.kind == Step::Kind::kMove) return TranslateMove(step, lanes, first);
  if (step.op == ir::Op::kFma) return TranslateFma(step, lanes, first);
  const auto reg = [&](const Operand& operand) { return Register(first + static_cast<int>(operand.value), lanes); };

  const Vector to = reg(step.to);
  const Vector a = reg(step.a);
  const Vector b_register = reg(step.b);
  const bool constant = step.b.kind == Operand::Kind::kConstant;
  const Address b_constant = constant ? Constant(step.b.value) : ptr[rsp];
  const Xbyak::Operand& b = constant ? static_cast<const Xbyak::Operand&>(b_constant) : b_register;
  const auto count = static_cast<uint8_t>(step.imm);
  switch (step.op) {
    case ir::Op::kConst:
    case ir::Op::kFma:
      break;
    case ir::Op::kAdd:
      vaddps(to, a, b);
      break;
    case ir::Op::kSub:
      vsubps(to, a, b);
      break;
    case ir::Op::kMul:
      vmulps(to, a, b);
      break;
    case ir::Op::kDiv:
      vdivps(to, a, b);
      break;
    case ir::Op::kMax:
      vmaxps(to, a, b);
      break;
    case ir::Op::kMin:
      vminps(to, a, b);
      break;
    case ir::Op::kLess:
      Compare(to, a, b, kLessThan);
      break;
    case ir::Op::kLessEq:
      Compare(to, a, b, kLessOrEqual);
      break;
    case ir::Op::kIsNan:
      Compare(to, a, a, kUnordered);
      break;
    case ir::Op::kSelect:
      Select(to, a, b, reg(step.c));
      break;
    case ir::Op::kAnd:
      vandps(to, a, b);
      break;
    case ir::Op::kOr:
      vorps(to, a, b);
      break;
    case ir::Op::kXor:
      vxorps(to, a, b);
      break;
    case ir::Op::kAndNot:
      vandnps(to, a, b);
      break;
    case ir::Op::kIntAdd:
      vpaddd(to, a, b);
      break;
    case ir::Op::kIntSub:
      vpsubd(to, a, b);
      break;
    case ir::Op::kShl:
      vpslld(to, a, count);
      break;
    case ir::Op::kShr:
      vpsrld(to, a, count);
      break;
    case ir::Op::kSar:
      vpsrad(to, a, count);
      break;
    case ir::Op::kToInt:
      vcvtps2dq(to, a);
      break;
    case ir::Op::kToFloat:
      vcvtdq2ps(to, a);
      break;
  }
}

}  // namespace clikart::codegen
