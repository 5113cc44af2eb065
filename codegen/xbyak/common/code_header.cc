// What every kernel of quantized weights reads from a group's header, and programs outside of the epilogue.

#include "clikart/ir/decoding.h"
#include "kernel_code.h"

namespace clikart::codegen {

Xbyak::Xmm KernelCode::RunProgram(const ir::Program& program, int first, int count) {
  const RegisterPlan plan = PlanRegisters(program, count);
  const int spilled = plan.slots * VectorBytes(Register(first));
  if (spilled > 0) sub(rsp, spilled);
  for (const Step& step : plan.steps) Translate(step, lanes(), first);
  if (spilled > 0) add(rsp, spilled);
  return Register(first + plan.result);
}

void KernelCode::LoadScales(ir::ScaleType type, const RegExp& from, int first, int count) {
  const Vector to = Register(first);
  switch (type) {
    case ir::ScaleType::kFloat32:
      return Load(ir::DType::kFloat32, to, from);
    case ir::ScaleType::kFloat16:
      return Load(ir::DType::kFloat16, to, from);
    case ir::ScaleType::kBFloat16:
      return Load(ir::DType::kBFloat16, to, from);
    case ir::ScaleType::kE8m0:
    case ir::ScaleType::kE4m3:
      break;
  }
  vpmovzxbd(to, ptr[from]);
  const Vector scales = RunProgram(ir::ScaleProgramOf(type), first, count);
  if (scales.getIdx() != to.getIdx()) vmovaps(to, scales);
}

}  // namespace clikart::codegen
