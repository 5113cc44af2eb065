// A function that multiplies a tile of any shape and keeps its accumulators in memory. Register kernels give it the
// last steps of a depth that their loop does not divide, so that each of them is compiled with one loop alone. And on
// CPUs without fma it does all the work: an emulated one takes some forty instructions, beside which it does not
// matter where accumulators live.

#include <cstddef>

#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int64_t kFloat = sizeof(float);

// Runs `body` for `begin`, begin + `step`, ... below `end`.
void Count(KernelBuilder& build, const char* name, Value* begin, Value* end, int64_t step,
           const std::function<void(Value*)>& body) {
  build.When(build.CreateICmpSLT(begin, end), {}, [&](const Values&) {
    build.Loop(name, {begin}, [&](const Values& now) {
      body(now[0]);
      Value* const next = build.CreateAdd(now[0], build.getInt64(step));
      return Turn{{next}, build.CreateICmpSLT(next, end)};
    });
    return Values{};
  });
}

}  // namespace

llvm::Function* BuildAnyTile(KernelBuilder& build, const std::string& name, const Packing& weights) {
  llvm::Type* const number = build.getInt64Ty();
  llvm::Function* const function = build.BeginShared(name, {build.getPtrTy(), number, number, number});
  Value* const rows = function->getArg(1);
  Value* const panels = function->getArg(2);
  Value* const begin = function->getArg(3);
  const int lanes = build.lanes();
  Value* const a = build.PointerArgument(offsetof(MicroArgs, a));
  Value* const a_stride = build.IntArgument(offsetof(MicroArgs, a_stride));
  Value* const b = build.PointerArgument(offsetof(MicroArgs, b));
  Value* const b_stride = build.IntArgument(offsetof(MicroArgs, b_stride));
  Value* const c = build.PointerArgument(offsetof(MicroArgs, c));
  Value* const c_stride = build.IntArgument(offsetof(MicroArgs, c_stride));
  Value* const depth = build.IntArgument(offsetof(MicroArgs, depth));
  Value* const resume = build.CreateOr(build.IntArgument(offsetof(MicroArgs, resume)), begin);
  Value* const row_bytes = build.CreateMul(rows, build.getInt64(kAccumulatorRow));
  llvm::Type* const type = AccumulatorType(build, weights.multiply);
  llvm::Type* const w_type =
      weights.multiply == Multiply::kWords ? llvm::FixedVectorType::get(build.getInt16Ty(), 2 * lanes) : type;
  Value* const decoded = build.Scratch(build.Floats(static_cast<int>(ir::kPanelLanes) * weights.interleave));

  Value* const zero = build.getInt64(0);
  Count(build, "panel", zero, panels, 1, [&](Value* panel) {
    Value* const panel_c = build.At(c, build.CreateMul(panel, c_stride));
    build.When(build.CreateICmpEQ(resume, build.getInt64(0)), {}, [&](const Values&) {
      Count(build, "fresh", zero, row_bytes, lanes * kFloat,
            [&](Value* at) { build.StoreVector(llvm::Constant::getNullValue(type), build.At(panel_c, at)); });
      return Values{};
    });
    Value* const panel_b = build.At(b, build.CreateMul(panel, b_stride));
    Count(build, "step", begin, depth, weights.interleave, [&](Value* first) {
      Value* const from = build.At(panel_b, build.CreateMul(first, build.getInt64(weights.StepBytes())));
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
      Count(build, "k", zero, count, 1, [&](Value* k) {
        Value* const w = build.At(decoded, build.CreateMul(k, build.getInt64(ir::kPanelLanes * kFloat)));
        Value* const k_a = build.At(step_a, build.CreateMul(k, build.getInt64(kFloat)));
        Count(build, "row", zero, rows, 1, [&](Value* row) {
          Value* const x = LoadInput(build, weights.multiply, build.At(k_a, build.CreateMul(row, a_stride)));
          Value* const row_c = build.At(panel_c, build.CreateMul(row, build.getInt64(kAccumulatorRow)));
          for (int64_t at = 0; at < kAccumulatorRow; at += lanes * kFloat) {
            Value* const place = build.At(row_c, at);
            Value* const sum = build.LoadVector(type, place);
            Value* const step_w = build.LoadVector(w_type, build.At(w, at));
            build.StoreVector(MultiplyAdd(build, weights.multiply, x, step_w, sum, true), place);
          }
        });
      });
    });
  });
  build.EndEntry();
  return function;
}

void CallAnyTile(KernelBuilder& build, llvm::Function* any_tile, int rows, int panels, Value* first) {
  build.CreateCall(any_tile, {build.ArgumentStruct(), build.getInt64(rows), build.getInt64(panels), first});
}

}  // namespace clikart::codegen::llvm_module
