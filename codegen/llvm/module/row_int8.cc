// compute="int8": groups of codes. A group's sums are those of an integer contraction, so a register kernel of that
// kind makes them; then they are corrected and go to the outputs, times two scales. One function does this for tiles
// of every shape, given the register kernel of the shape.

#include <cstddef>

#include "entries.h"
#include "group_header.h"
#include "micro_call.h"
#include "row_int8_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

class Groups {
 public:
  Groups(KernelBuilder& build, const ir::KernelSpec& spec, int step, llvm::Function* function)
      : build_(build),
        layout_(ir::CodeLayoutOf(spec)),
        correction_(CorrectionOf(layout_.scheme)),
        parts_(spec.interleave / step),
        group_(LongestGroup(spec)),
        rows_(function->getArg(1)),
        panels_(function->getArg(2)),
        micro_(function->getArg(3)),
        b_stride_(Int(offsetof(GroupsArgs, b_stride))),
        c_(Pointer(offsetof(GroupsArgs, c))),
        c_stride_(Int(offsetof(GroupsArgs, c_stride))) {}

  void Build(int64_t accumulators) {
    sums_ = build_.Scratch(llvm::ArrayType::get(build_.getInt32Ty(), static_cast<uint64_t>(accumulators)));
    sums_stride_ = build_.CreateMul(rows_, build_.getInt64(kAccumulatorRow));
    ClearOutputs();
    MicroCall micro(build_, micro_);
    micro.Set(offsetof(MicroArgs, a_stride), Int(offsetof(GroupsArgs, a_stride)));
    micro.Set(offsetof(MicroArgs, b_stride), b_stride_);
    micro.Set(offsetof(MicroArgs, c), sums_);
    micro.Set(offsetof(MicroArgs, c_stride), sums_stride_);
    micro.Set(offsetof(MicroArgs, resume), build_.getInt64(0));
    const int64_t step_bytes = layout_.UnitBytes() / parts_;
    micro.Set(offsetof(MicroArgs, prefetch_step), build_.getInt64(kMicroUnroll * step_bytes));

    Value* const corrections_stride = Int(offsetof(GroupsArgs, corrections_stride));
    const int64_t steps = layout_.UnitsOf(group_) * parts_;
    const int64_t last = layout_.Groups() - 1;
    Value* const last_steps = build_.getInt64(last < 0 ? 0 : layout_.UnitsOf(layout_.GroupSteps(last)) * parts_);
    // A group's rows, header, what is asked for meanwhile and corrections; the groups left.
    const Values start = {Pointer(offsetof(GroupsArgs, a)), Pointer(offsetof(GroupsArgs, b)),
                          Pointer(offsetof(GroupsArgs, prefetch)), Pointer(offsetof(GroupsArgs, corrections)),
                          Int(offsetof(GroupsArgs, groups))};
    build_.When(build_.IsPositive(start[4]), start, [&](const Values& first) {
      return build_.Loop("group", first, [&](const Values& now) {
        Value* const left = build_.CreateSub(now[4], build_.getInt64(1));
        Value* const more = build_.IsPositive(left);
        micro.Set(offsetof(MicroArgs, a), now[0]);
        micro.Set(offsetof(MicroArgs, b), build_.At(now[1], layout_.CodesAt()));
        micro.Set(offsetof(MicroArgs, prefetch), build_.At(now[2], layout_.CodesAt()));
        micro.Set(offsetof(MicroArgs, depth), build_.CreateSelect(more, build_.getInt64(steps), last_steps));
        micro.Call();
        AddGroup(now[1], now[3]);
        const int64_t bytes = layout_.GroupBytes(group_);
        return Turn{{build_.At(now[0], steps * kPartBytes), build_.At(now[1], bytes), build_.At(now[2], bytes),
                     build_.At(now[3], corrections_stride), left},
                    more};
      });
    });
  }

 private:
  Value* Pointer(size_t offset) { return build_.PointerArgument(offset); }
  Value* Int(size_t offset) { return build_.IntArgument(offset); }
  Value* Next(Value* count) { return build_.CreateSub(count, build_.getInt64(1)); }

  // A number of memory in every lane.
  Value* Splat(llvm::Type* type, Value* from) {
    return build_.CreateVectorSplat(build_.lanes(), build_.CreateAlignedLoad(type, from, llvm::Align(4)));
  }

  // They start from +0.
  void ClearOutputs() {
    const Values zeros(static_cast<size_t>(ir::kPanelLanes / build_.lanes()),
                       llvm::Constant::getNullValue(build_.Floats(build_.lanes())));
    build_.Loop("panel", {c_, panels_}, [&](const Values& panel) {
      build_.Loop("clear", {panel[0], rows_}, [&](const Values& row) {
        build_.StorePanelLanes(zeros, row[0]);
        Value* const left = Next(row[1]);
        return Turn{{build_.At(row[0], kAccumulatorRow), left}, build_.IsPositive(left)};
      });
      Value* const left = Next(panel[1]);
      return Turn{{build_.At(panel[0], c_stride_), left}, build_.IsPositive(left)};
    });
  }

  // c = fma(float(sum), row scale * scale, c) and, with minimums, c = fma(code sum, row scale * minimum, c).
  void AddGroup(Value* header, Value* corrections) {
    build_.Loop("panel", {c_, sums_, header, panels_}, [&](const Values& panel) {
      const Values scales = LoadScales(build_, layout_, panel[2]);
      const bool minimums = correction_ == Correction::kMinimums;
      const Values offsets =
          minimums ? LoadMinimums(build_, layout_, panel[2]) : LoadZeroPoints(build_, layout_, panel[2]);
      Value* const row_scales = build_.At(build_.ArgumentStruct(), int64_t{offsetof(GroupsArgs, row_scales)});
      const Values start = {panel[0], panel[1], row_scales, corrections, rows_};
      build_.Loop("row", start, [&](const Values& row) {
        AddRow(row, scales, offsets);
        Value* const left = Next(row[4]);
        return Turn{{build_.At(row[0], kAccumulatorRow), build_.At(row[1], kAccumulatorRow),
                     build_.At(row[2], sizeof(float)), build_.At(row[3], sizeof(int32_t)), left},
                    build_.IsPositive(left)};
      });
      Value* const left = Next(panel[3]);
      return Turn{
          {build_.At(panel[0], c_stride_), build_.At(panel[1], sums_stride_), build_.At(panel[2], b_stride_), left},
          build_.IsPositive(left)};
    });
  }

  // `row`: the places of its outputs, sums, scale and correction. `offsets`: minimums or zero points.
  void AddRow(const Values& row, const Values& scales, const Values& offsets) {
    Value* const row_scale = Splat(build_.getFloatTy(), row[2]);
    const bool minimums = correction_ == Correction::kMinimums;
    Value* const correction = Splat(minimums ? build_.getFloatTy() : build_.getInt32Ty(), row[3]);
    Values outputs = build_.LoadPanelLanes(build_.Floats(build_.lanes()), row[0]);
    const Values sums = build_.LoadPanelLanes(build_.Ints(build_.lanes()), row[1]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value* sum = sums[i];
      if (correction_ == Correction::kMidpoint) sum = build_.CreateAdd(sum, correction);
      if (correction_ == Correction::kZeroPoints) {
        sum = build_.CreateAdd(sum, build_.CreateMul(correction, offsets[i]));
      }
      Value* const whole = build_.CreateSIToFP(sum, build_.Floats(build_.lanes()));
      outputs[i] = build_.Fma(whole, build_.CreateFMul(row_scale, scales[i]), outputs[i]);
      if (minimums) outputs[i] = build_.Fma(correction, build_.CreateFMul(row_scale, offsets[i]), outputs[i]);
    }
    build_.StorePanelLanes(outputs, row[0]);
  }

  KernelBuilder& build_;
  const ir::CodeLayout layout_;
  const Correction correction_;
  const int parts_;
  const int64_t group_;
  Value* const rows_;
  Value* const panels_;
  Value* const micro_;
  Value* const b_stride_;
  Value* const c_;
  Value* const c_stride_;
  Value* sums_ = nullptr;  // of the group at hand
  Value* sums_stride_ = nullptr;
};

}  // namespace

llvm::Function* BuildRowInt8Groups(KernelBuilder& build, const ir::KernelSpec& spec, int step, int64_t accumulators) {
  llvm::Type* const number = build.getInt64Ty();
  llvm::Function* const function = build.BeginShared("groups", {build.getPtrTy(), number, number, build.getPtrTy()});
  Groups(build, spec, step, function).Build(accumulators);
  build.EndEntry();
  return function;
}

}  // namespace clikart::codegen::llvm_module
