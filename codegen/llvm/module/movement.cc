// Moving and converting elements: k steps of a panel, rows staged as f32.

#include <cstddef>

#include "clikart/ir/panel_layout.h"
#include "code_driver.h"
#include "entries.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

int64_t Bytes(ir::DType dtype, int64_t elements) { return elements * static_cast<int64_t>(ir::SizeOf(dtype)); }

// Writes `count` f32 elements at `to`: vectors, then one by one. `load` answers that many at a byte offset of the
// elements' own size `element`, as f32 vectors.
void CopyRow(KernelBuilder& build, Value* to, Value* count, int64_t element,
             const std::function<Value*(Value* at, int lanes)>& load) {
  Value* const zero = build.getInt64(0);
  Value* const whole = build.CreateAnd(count, build.getInt64(~int64_t{build.lanes() - 1}));
  const auto run = [&](const char* name, Value* first, Value* end, int lanes) {
    build.When(build.CreateICmpSLT(first, end), {}, [&](const Values&) {
      build.Loop(name, {first}, [&](const Values& now) {
        Value* const value = load(build.CreateMul(now[0], build.getInt64(element)), lanes);
        build.StoreVector(value, build.At(to, build.CreateMul(now[0], build.getInt64(sizeof(float)))));
        Value* const next = build.CreateAdd(now[0], build.getInt64(lanes));
        return Turn{{next}, build.CreateICmpSLT(next, end)};
      });
      return Values{};
    });
  };
  run("vectors", zero, whole, build.lanes());
  run("elements", whole, count, 1);
}

}  // namespace

void BuildWiden(KernelBuilder& build, const Packing& weights) {
  Value* const from = build.PointerArgument(offsetof(WidenArgs, panel));
  Value* const to = build.PointerArgument(offsetof(WidenArgs, out));
  Value* const steps = build.IntArgument(offsetof(WidenArgs, steps));
  const auto widen = [&](const Values& now, int count) {
    const Values packed = LoadPacked(build, weights, now[0]);
    for (int k = 0; k < count; ++k) {
      const Values vectors = Decode(build, weights, packed, k);
      for (size_t i = 0; i < vectors.size(); ++i) {
        const int64_t at = k * kAccumulatorRow + static_cast<int64_t>(i) * 4 * build.lanes();
        build.StoreVector(vectors[i], build.At(now[1], at));
      }
    }
    return Values{build.At(now[0], count * weights.StepBytes()), build.At(now[1], count * kAccumulatorRow),
                  build.CreateSub(now[2], build.getInt64(count))};
  };
  Value* const whole = build.getInt64(weights.interleave);
  Values state = {from, to, steps};
  state = build.When(build.CreateICmpSGE(steps, whole), state, [&](const Values& first) {
    return build.Loop("step", first, [&](const Values& now) {
      const Values next = widen(now, weights.interleave);
      return Turn{next, build.CreateICmpSGE(next[2], whole)};
    });
  });
  if (weights.interleave == 1) return;
  build.When(build.IsPositive(state[2]), state, [&](const Values& now) { return widen(now, 1); });
}

void BuildStage(KernelBuilder& build, ir::DType x, ir::Access access) {
  const bool dense = access == ir::Access::kDense;
  Value* const base = build.PointerArgument(offsetof(StageArgs, x));
  Value* const table = build.PointerArgument(offsetof(StageArgs, offsets));
  Value* const stride = build.IntArgument(dense ? offsetof(StageArgs, x_stride) : offsetof(StageArgs, offsets_stride));
  Value* const out_stride = build.IntArgument(offsetof(StageArgs, out_stride));
  Value* const count = build.IntArgument(offsetof(StageArgs, count));
  Value* const out = build.PointerArgument(offsetof(StageArgs, out));
  Value* const rows = build.IntArgument(offsetof(StageArgs, rows));
  // Dense: a row's address; indirect: its entry of the table.
  build.Loop("row", {dense ? base : table, out, rows}, [&](const Values& now) {
    const auto copy = [&](Value* from) {
      CopyRow(build, now[1], count, Bytes(x, 1),
              [&, from](Value* at, int lanes) { return build.LoadWidened(x, build.At(from, at), lanes); });
    };
    if (dense) {
      copy(now[0]);
    } else {
      Value* const offset = build.CreateLoad(build.getInt64Ty(), now[0]);
      Value* const is_zero = build.CreateICmpEQ(offset, build.getInt64(static_cast<uint64_t>(kZeroTap)));
      build.When(is_zero, {}, [&](const Values&) {
        CopyRow(build, now[1], count, 1,
                [&](Value*, int lanes) -> Value* { return llvm::Constant::getNullValue(build.Floats(lanes)); });
        return Values{};
      });
      build.When(build.CreateNot(is_zero), {}, [&](const Values&) {
        copy(build.At(base, offset));
        return Values{};
      });
    }
    Value* const left = build.CreateSub(now[2], build.getInt64(1));
    return Turn{{build.At(now[0], stride), build.At(now[1], out_stride), left}, build.IsPositive(left)};
  });
}

void BuildGather(KernelBuilder& build, ir::DType x) {
  Value* const stride = build.IntArgument(offsetof(GatherArgs, x_stride));
  Value* const columns = build.PointerArgument(offsetof(GatherArgs, columns));
  Value* const out_stride = build.IntArgument(offsetof(GatherArgs, out_stride));
  Value* const count = build.IntArgument(offsetof(GatherArgs, count));
  const Values start = {build.PointerArgument(offsetof(GatherArgs, x)),
                        build.PointerArgument(offsetof(GatherArgs, out)),
                        build.IntArgument(offsetof(GatherArgs, rows))};
  build.Loop("row", start, [&](const Values& row) {
    build.Loop("column", {columns, row[1], count}, [&](const Values& now) {
      Value* const column =
          build.CreateSExt(build.CreateAlignedLoad(build.getInt32Ty(), now[0], llvm::Align(4)), build.getInt64Ty());
      Value* const at = build.CreateMul(column, build.getInt64(Bytes(x, 1)));
      build.StoreVector(build.LoadWidened(x, build.At(row[0], at), 1), now[1]);
      Value* const left = build.CreateSub(now[2], build.getInt64(1));
      return Turn{{build.At(now[0], sizeof(int32_t)), build.At(now[1], sizeof(float)), left}, build.IsPositive(left)};
    });
    Value* const left = build.CreateSub(row[2], build.getInt64(1));
    return Turn{{build.At(row[0], stride), build.At(row[1], out_stride), left}, build.IsPositive(left)};
  });
}

}  // namespace clikart::codegen::llvm_module
