// Groups of quantized weights in their widened form. A group's sums are those of f32 weights, so a register kernel of
// that kind makes them; then they go to the accumulators, times the group's scales. One function does this for tiles
// of every shape, given the register kernel of the shape.

#include <cstddef>

#include "code_driver.h"
#include "entries.h"
#include "micro_call.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

class Groups {
 public:
  Groups(KernelBuilder& build, const ir::KernelSpec& spec, llvm::Function* function)
      : build_(build),
        minimum_(spec.scheme->minimum),
        rows_(function->getArg(1)),
        panels_(function->getArg(2)),
        micro_(function->getArg(3)),
        zero_(build.getInt64(0)),
        c_(Pointer(offsetof(CodeMicroArgs, c))),
        c_stride_(Int(offsetof(CodeMicroArgs, c_stride))) {}

  void Build(int64_t accumulators) {
    Value* const steps = Int(offsetof(CodeMicroArgs, steps));
    Value* const resume = Int(offsetof(CodeMicroArgs, resume));
    Value* const partial = Int(offsetof(CodeMicroArgs, partial));
    // A group that comes in pieces has its sums where the driver keeps them from piece to piece.
    Value* const pieced = build_.CreateICmpNE(build_.CreateOr(resume, partial), zero_);
    Value* const own = build_.Scratch(llvm::ArrayType::get(build_.getFloatTy(), static_cast<uint64_t>(accumulators)));
    t_ = build_.CreateSelect(pieced, Pointer(offsetof(CodeMicroArgs, t)), own);
    t_stride_ = build_.CreateSelect(pieced, c_stride_, build_.CreateMul(rows_, build_.getInt64(kAccumulatorRow)));
    MicroCall micro(build_, micro_);
    micro.Set(offsetof(MicroArgs, a_stride), Int(offsetof(CodeMicroArgs, a_stride)));
    micro.Set(offsetof(MicroArgs, b_stride), Int(offsetof(CodeMicroArgs, b_stride)));
    micro.Set(offsetof(MicroArgs, depth), steps);
    micro.Set(offsetof(MicroArgs, c), t_);
    micro.Set(offsetof(MicroArgs, c_stride), t_stride_);
    micro.Set(offsetof(MicroArgs, resume), resume);
    micro.Set(offsetof(MicroArgs, prefetch_step), zero_);

    Value* const a_bytes = build_.CreateMul(steps, build_.getInt64(sizeof(float)));
    Value* const b_bytes = build_.CreateMul(steps, build_.getInt64(kAccumulatorRow));
    Value* const lanes_bytes = build_.CreateMul(panels_, build_.getInt64(sizeof(GroupLanes)));
    Value* const sums_stride = Int(offsetof(CodeMicroArgs, sums_stride));
    const Values start = {Pointer(offsetof(CodeMicroArgs, a)), Pointer(offsetof(CodeMicroArgs, b)),
                          Pointer(offsetof(CodeMicroArgs, lanes)), Pointer(offsetof(CodeMicroArgs, sums)),
                          Int(offsetof(CodeMicroArgs, groups))};
    build_.Loop("group", start, [&](const Values& now) {
      micro.Set(offsetof(MicroArgs, a), now[0]);
      micro.Set(offsetof(MicroArgs, b), now[1]);
      micro.Set(offsetof(MicroArgs, prefetch), now[1]);
      micro.Call();
      build_.When(build_.CreateICmpEQ(partial, zero_), {}, [&](const Values&) {
        AddScaled(now[2], now[3]);
        return Values{};
      });
      Value* const left = build_.CreateSub(now[4], build_.getInt64(1));
      return Turn{{build_.At(now[0], a_bytes), build_.At(now[1], b_bytes), build_.At(now[2], lanes_bytes),
                   build_.At(now[3], sums_stride), left},
                  build_.IsPositive(left)};
    });
  }

 private:
  Value* Pointer(size_t offset) { return build_.PointerArgument(offset); }
  Value* Int(size_t offset) { return build_.IntArgument(offset); }

  Values LoadLanes(Value* from, size_t offset = 0) {
    return build_.LoadPanelLanes(build_.Floats(build_.lanes()), build_.At(from, static_cast<int64_t>(offset)));
  }

  // c = fma(t, scale, c) and, with minimums, c = fma(sum of the row's inputs, minimum, c).
  void AddScaled(Value* lanes, Value* sums) {
    build_.Loop("panel", {c_, t_, lanes, panels_}, [&](const Values& panel) {
      const Values scales = LoadLanes(panel[2], offsetof(GroupLanes, scale));
      const Values minimums = minimum_ ? LoadLanes(panel[2], offsetof(GroupLanes, minimum)) : Values{};
      build_.Loop("row", {panel[0], panel[1], sums, rows_}, [&](const Values& row) {
        AddRow(row[0], row[1], scales, minimums, row[2]);
        Value* const left = build_.CreateSub(row[3], build_.getInt64(1));
        return Turn{{build_.At(row[0], kAccumulatorRow), build_.At(row[1], kAccumulatorRow),
                     build_.At(row[2], sizeof(float)), left},
                    build_.IsPositive(left)};
      });
      Value* const left = build_.CreateSub(panel[3], build_.getInt64(1));
      return Turn{{build_.At(panel[0], c_stride_), build_.At(panel[1], t_stride_),
                   build_.At(panel[2], sizeof(GroupLanes)), left},
                  build_.IsPositive(left)};
    });
  }

  void AddRow(Value* c, Value* t, const Values& scales, const Values& minimums, Value* sum) {
    const Values chains = LoadLanes(t);
    Values results = LoadLanes(c);
    for (size_t i = 0; i < results.size(); ++i) results[i] = build_.Fma(chains[i], scales[i], results[i]);
    if (minimum_) {
      Value* const inputs = build_.CreateVectorSplat(build_.lanes(), build_.CreateLoad(build_.getFloatTy(), sum));
      for (size_t i = 0; i < results.size(); ++i) results[i] = build_.Fma(inputs, minimums[i], results[i]);
    }
    build_.StorePanelLanes(results, c);
  }

  KernelBuilder& build_;
  const bool minimum_;
  Value* const rows_;
  Value* const panels_;
  Value* const micro_;
  Value* const zero_;
  Value* const c_;
  Value* const c_stride_;
  Value* t_ = nullptr;  // sums of the group at hand
  Value* t_stride_ = nullptr;
};

}  // namespace

llvm::Function* BuildWidenedGroups(KernelBuilder& build, const ir::KernelSpec& spec, int64_t accumulators) {
  llvm::Type* const number = build.getInt64Ty();
  llvm::Function* const function = build.BeginShared("groups", {build.getPtrTy(), number, number, build.getPtrTy()});
  Groups(build, spec, function).Build(accumulators);
  build.EndEntry();
  return function;
}

}  // namespace clikart::codegen::llvm_module
