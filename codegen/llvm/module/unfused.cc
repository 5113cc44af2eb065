// Register kernels for CPUs without fma. An emulated one takes some forty instructions, beside which it does not
// matter where accumulators live: they stay in memory, and one function serves every shape of register tile.

#include <cstddef>

#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int64_t kFloat = sizeof(float);

// Runs `body` for 0, `step`, ... below `end`.
void Count(KernelBuilder& build, const char* name, Value* end, int64_t step, const std::function<void(Value*)>& body) {
  Value* const zero = build.getInt64(0);
  build.When(build.CreateICmpSLT(zero, end), {}, [&](const Values&) {
    build.Loop(name, {zero}, [&](const Values& now) {
      body(now[0]);
      Value* const next = build.CreateAdd(now[0], build.getInt64(step));
      return Turn{{next}, build.CreateICmpSLT(next, end)};
    });
    return Values{};
  });
}

}  // namespace

llvm::Function* BuildUnfusedSteps(KernelBuilder& build, const std::string& name, const Packing& weights) {
  llvm::Function* const function = build.BeginShared(name, {build.getPtrTy(), build.getInt64Ty(), build.getInt64Ty()});
  Value* const rows = function->getArg(1);
  Value* const panels = function->getArg(2);
  const int lanes = build.lanes();
  Value* const a = build.PointerArgument(offsetof(MicroArgs, a));
  Value* const a_stride = build.IntArgument(offsetof(MicroArgs, a_stride));
  Value* const b = build.PointerArgument(offsetof(MicroArgs, b));
  Value* const b_stride = build.IntArgument(offsetof(MicroArgs, b_stride));
  Value* const c = build.PointerArgument(offsetof(MicroArgs, c));
  Value* const c_stride = build.IntArgument(offsetof(MicroArgs, c_stride));
  Value* const depth = build.IntArgument(offsetof(MicroArgs, depth));
  Value* const resume = build.IntArgument(offsetof(MicroArgs, resume));
  Value* const row_bytes = build.CreateMul(rows, build.getInt64(kAccumulatorRow));
  llvm::Type* const floats = build.Floats(lanes);
  Value* const decoded = build.Scratch(build.Floats(static_cast<int>(ir::kPanelLanes) * weights.interleave));

  Count(build, "panel", panels, 1, [&](Value* panel) {
    Value* const panel_c = build.At(c, build.CreateMul(panel, c_stride));
    build.When(build.CreateICmpEQ(resume, build.getInt64(0)), {}, [&](const Values&) {
      Count(build, "fresh", row_bytes, lanes * kFloat,
            [&](Value* at) { build.StoreVector(llvm::Constant::getNullValue(floats), build.At(panel_c, at)); });
      return Values{};
    });
    Value* const panel_b = build.At(b, build.CreateMul(panel, b_stride));
    Count(build, "step", depth, weights.interleave, [&](Value* first) {
      Value* const from = build.At(panel_b, build.CreateMul(first, build.getInt64(weights.DepthBytes())));
      const Values packed = LoadPacked(build, weights, from);
      for (int k = 0; k < weights.interleave; ++k) {
        const Values vectors = Decode(build, weights, packed, k);
        for (size_t i = 0; i < vectors.size(); ++i) {
          const int64_t at = (k * ir::kPanelLanes + static_cast<int64_t>(i) * lanes) * kFloat;
          build.StoreVector(vectors[i], build.At(decoded, at));
        }
      }
      Value* const left = build.CreateSub(depth, first);
      Value* const whole = build.getInt64(weights.interleave);
      Value* const count = build.CreateSelect(build.CreateICmpSLT(left, whole), left, whole);
      Value* const step_a = build.At(a, build.CreateMul(first, build.getInt64(kFloat)));
      Count(build, "k", count, 1, [&](Value* k) {
        Value* const w = build.At(decoded, build.CreateMul(k, build.getInt64(ir::kPanelLanes * kFloat)));
        Value* const k_a = build.At(step_a, build.CreateMul(k, build.getInt64(kFloat)));
        Count(build, "row", rows, 1, [&](Value* row) {
          Value* const x = build.LoadSplat(build.At(k_a, build.CreateMul(row, a_stride)), lanes);
          Value* const row_c = build.At(panel_c, build.CreateMul(row, build.getInt64(kAccumulatorRow)));
          for (int64_t at = 0; at < kAccumulatorRow; at += lanes * kFloat) {
            Value* const place = build.At(row_c, at);
            Value* const sum = build.LoadVector(floats, place);
            build.StoreVector(build.EmulatedFma(x, build.LoadVector(floats, build.At(w, at)), sum), place);
          }
        });
      });
    });
  });
  build.EndEntry();
  return function;
}

void BuildUnfusedMicro(KernelBuilder& build, llvm::Function* steps, int rows, int panels) {
  build.CreateCall(steps, {build.ArgumentStruct(), build.getInt64(rows), build.getInt64(panels)});
}

}  // namespace clikart::codegen::llvm_module
