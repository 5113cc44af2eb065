// The epilogue: bias, program, one rounding and the store, a vector of outputs at a time. The code is one
// loop body whatever the tile's size, and every value between load and store is in a register.

#include <algorithm>
#include <cstddef>

#include "kernel_code.h"

namespace clikart::codegen {

int32_t KernelCode::Epilogue(const ir::KernelSpec& spec, const ir::Program& program, int vectors) {
  const int32_t entry = Begin();
  const int registers = vectors == 0 ? this->vectors() : vectors;
  const RegisterPlan plan = PlanRegisters(program, registers);
  // A gated panel has eight outputs: gates in one half, ups in the other.
  const int wide = spec.gated() ? std::min(lanes(), static_cast<int>(ir::kPanelLanes) / 2) : lanes();
  const int vector_bytes = wide * static_cast<int>(sizeof(float));
  constexpr int ups_at = static_cast<int>(ir::kPanelLanes) / 2 * static_cast<int>(sizeof(float));
  const Vector first = Register(0, wide);
  const Vector second = Register(1, wide);
  const Vector result = Register(plan.result, wide);
  const Vector spare0 = Register((plan.result + 1) % registers, wide);
  const Vector spare1 = Register((plan.result + 2) % registers, wide);
  const int output_bytes = wide * static_cast<int>(ir::SizeOf(spec.y));
  const bool integer = spec.contraction == ir::Contraction::kInteger;
  const bool biased = spec.bias != ir::BiasKind::kNone;

  const Reg64 c = TakePointer();
  const Reg64 y = TakePointer();
  const Reg64 c_row = TakePointer();
  const Reg64 y_row = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 columns = TakePointer();
  const Reg64 bias = TakePointer();  // or an integer contraction's terms
  const Reg64 spare = TakePointer();

  if (plan.slots > 0) sub(rsp, plan.slots * vector_bytes);
  mov(c, Argument(offsetof(EpilogueArgs, c)));
  mov(y, Argument(offsetof(EpilogueArgs, y)));
  mov(columns, Argument(offsetof(EpilogueArgs, columns)));
  if (integer) {
    mov(bias, Argument(offsetof(EpilogueArgs, terms)));
  } else if (biased) {
    mov(bias, Argument(offsetof(EpilogueArgs, bias)));
  }

  Label next_vector, next_row, partial, stored;
  L(next_vector);
  mov(c_row, c);
  mov(y_row, y);
  mov(rows, Argument(offsetof(EpilogueArgs, rows)));
  align(16);
  L(next_row);
  const size_t row_at = getSize();
  if (integer) {
    LoadSums(spec, first, c_row, bias, second);
    if (spec.gated()) LoadSums(spec, second, c_row + ups_at, bias + ups_at, second);
  } else {
    vmovups(first, ptr[c_row]);
    if (spec.gated()) vmovups(second, ptr[c_row + ups_at]);
    if (biased) vaddps(first, first, ptr[bias]);
  }
  for (const Step& step : plan.steps) Translate(step, wide);
  if (spec.requantize) Requantize(result, spare0);
  Round(spec.y, result, spare0, spare1);
  cmp(columns, wide);
  jl(partial, T_NEAR);
  Store(spec.y, y_row, result);
  L(stored);
  add(c_row, Argument(offsetof(EpilogueArgs, c_stride)));
  add(y_row, Argument(offsetof(EpilogueArgs, y_stride)));
  dec(rows);
  jnz(next_row, T_NEAR);
  EndLoop("epilogue", row_at, 0);

  add(c, vector_bytes);
  add(y, output_bytes);
  if (biased || integer) add(bias, vector_bytes);
  sub(columns, wide);
  jg(next_vector, T_NEAR);
  if (plan.slots > 0) add(rsp, plan.slots * vector_bytes);
  Return();

  L(partial);
  StoreTail(spec.y, y_row, result, columns, spare);
  jmp(stored, T_NEAR);
  return entry;
}

}  // namespace clikart::codegen
