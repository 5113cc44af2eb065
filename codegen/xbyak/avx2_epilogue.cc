// The epilogue: bias, program, one rounding and the store, eight outputs at a time. The code is one
// loop body whatever the tile's size, and every value between load and store is in a register.

#include <cstddef>

#include "avx2_code.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {
namespace {

constexpr int kLanes = 8;
constexpr int kVectorBytes = 32;

}  // namespace

int32_t Avx2Code::Epilogue(const ir::KernelSpec& spec, const ir::Program& program, int vectors) {
  const int32_t entry = Begin();
  const RegisterPlan plan = PlanRegisters(program, vectors);
  const Ymm result(plan.result);
  const Ymm spare0((plan.result + 1) % vectors);
  const Ymm spare1((plan.result + 2) % vectors);
  const int output_bytes = kLanes * static_cast<int>(ir::SizeOf(spec.y));

  const Reg64 c = TakePointer();
  const Reg64 y = TakePointer();
  const Reg64 c_row = TakePointer();
  const Reg64 y_row = TakePointer();
  const Reg64 y_stride = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 columns = TakePointer();
  const Reg64 bias = TakePointer();

  if (plan.slots > 0) sub(rsp, plan.slots * kVectorBytes);
  mov(c, Argument(offsetof(EpilogueArgs, c)));
  mov(y, Argument(offsetof(EpilogueArgs, y)));
  mov(y_stride, Argument(offsetof(EpilogueArgs, y_stride)));
  mov(columns, Argument(offsetof(EpilogueArgs, columns)));
  if (spec.bias != ir::BiasKind::kNone) mov(bias, Argument(offsetof(EpilogueArgs, bias)));

  Label next_vector, next_row, partial, stored;
  L(next_vector);
  mov(c_row, c);
  mov(y_row, y);
  mov(rows, Argument(offsetof(EpilogueArgs, rows)));
  align(16);
  L(next_row);
  vmovups(ymm0, ptr[c_row]);
  if (spec.gated()) vmovups(ymm1, ptr[c_row + kVectorBytes]);
  if (spec.bias != ir::BiasKind::kNone) vaddps(ymm0, ymm0, ptr[bias]);
  for (const Step& step : plan.steps) Translate(step);
  Round(spec.y, result, spare0, spare1);
  cmp(columns, kLanes);
  jl(partial, T_NEAR);
  StoreEight(spec.y, y_row, result);
  L(stored);
  add(c_row, Argument(offsetof(EpilogueArgs, c_stride)));
  add(y_row, y_stride);
  dec(rows);
  jnz(next_row, T_NEAR);

  add(c, kVectorBytes);
  add(y, output_bytes);
  if (spec.bias != ir::BiasKind::kNone) add(bias, kVectorBytes);
  sub(columns, kLanes);
  jg(next_vector, T_NEAR);
  if (plan.slots > 0) add(rsp, plan.slots * kVectorBytes);
  Return();

  L(partial);
  StoreTail(spec.y, y_row, result, columns);
  jmp(stored, T_NEAR);
  return entry;
}

}  // namespace clikart::codegen
