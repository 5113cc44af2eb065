// The epilogue: bias, program, one rounding and the store, a vector of outputs at a time. Its loops are nested so
// that a vector's bias is read once for all rows.

#include <algorithm>
#include <cstddef>

#include "clikart/ir/activation.h"
#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "panel_driver.h"
#include "program.h"

namespace clikart::codegen::llvm_module {

void BuildEpilogue(KernelBuilder& build, const ir::KernelSpec& spec) {
  using Turn = KernelBuilder::Turn;
  constexpr int kGatedOutputs = ir::kPanelLanes / 2;
  const int lanes = spec.gated() ? std::min(kGatedOutputs, build.lanes()) : build.lanes();
  const int64_t vector_bytes = lanes * int64_t{sizeof(float)};
  llvm::Type* const floats = build.Floats(lanes);
  Value* const c_stride = build.IntArgument(offsetof(EpilogueArgs, c_stride));
  Value* const y_stride = build.IntArgument(offsetof(EpilogueArgs, y_stride));
  Value* const rows = build.IntArgument(offsetof(EpilogueArgs, rows));
  const bool biased = spec.bias != ir::BiasKind::kNone;

  const auto finish_row = [&](Value* c, Value* y, Value* bias, Value* columns) {
    Values inputs = {build.LoadVector(floats, c)};
    if (spec.gated()) {
      inputs.push_back(build.LoadVector(floats, build.At(c, kGatedOutputs * int64_t{sizeof(float)})));
    }
    if (biased) inputs[0] = build.CreateFAdd(inputs[0], bias);
    Value* const rounded = build.Round(spec.y, LowerProgram(build, ir::ProgramOf(spec.activation), inputs));
    Value* const whole = build.CreateICmpSGE(columns, build.getInt64(lanes));
    build.When(whole, {}, [&](const Values&) {
      build.StoreVector(rounded, y);
      return Values{};
    });
    build.When(build.CreateNot(whole), {}, [&](const Values&) {
      build.StoreFirst(rounded, y, columns);
      return Values{};
    });
  };

  Values start = {build.PointerArgument(offsetof(EpilogueArgs, c)), build.PointerArgument(offsetof(EpilogueArgs, y)),
                  build.IntArgument(offsetof(EpilogueArgs, columns))};
  if (biased) start.push_back(build.PointerArgument(offsetof(EpilogueArgs, bias)));
  build.Loop("vector", start, [&](const Values& outer) {
    Value* const bias = biased ? build.LoadVector(floats, outer[3]) : nullptr;
    build.Loop("row", {outer[0], outer[1], rows}, [&](const Values& now) {
      finish_row(now[0], now[1], bias, outer[2]);
      Value* const left = build.CreateSub(now[2], build.getInt64(1));
      return Turn{{build.At(now[0], c_stride), build.At(now[1], y_stride), left}, build.IsPositive(left)};
    });
    Value* const columns = build.CreateSub(outer[2], build.getInt64(lanes));
    const auto element = static_cast<int64_t>(ir::SizeOf(spec.y));
    Values next = {build.At(outer[0], vector_bytes), build.At(outer[1], lanes * element), columns};
    if (biased) next.push_back(build.At(outer[3], vector_bytes));
    return Turn{next, build.IsPositive(columns)};
  });
}

}  // namespace clikart::codegen::llvm_module
