// Quantized weights to floats: a group's header and its codes (ir/code_layout.h), one group after the other.

#include <cstddef>

#include "code_decoder.h"
#include "code_driver.h"
#include "entries.h"
#include "group_header.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

class Widening {
 public:
  Widening(KernelBuilder& build, const ir::KernelSpec& spec)
      : build_(build), decoder_(build, spec, 1), layout_(decoder_.layout()), scheme_(layout_.scheme) {}

  void Build() {
    Value* const lanes_stride = build_.IntArgument(offsetof(WidenCodesArgs, lanes_stride));
    Value* const steps = build_.IntArgument(offsetof(WidenCodesArgs, steps));
    ahead_ = build_.IntArgument(offsetof(WidenCodesArgs, prefetch));
    const Values start = {
        build_.PointerArgument(offsetof(WidenCodesArgs, header)),
        build_.PointerArgument(offsetof(WidenCodesArgs, codes)), build_.PointerArgument(offsetof(WidenCodesArgs, out)),
        build_.PointerArgument(offsetof(WidenCodesArgs, lanes)), build_.IntArgument(offsetof(WidenCodesArgs, groups))};
    build_.Loop("group", start, [&](const Values& group) {
      WidenHeader(group[0], group[3]);
      decoder_.BeginGroup(group[0]);
      const Values decoded = build_.When(build_.IsPositive(steps), {group[1], group[2], steps},
                                         [&](const Values& first) { return DecodeSteps(first); });
      Value* const next = build_.At(group[0], layout_.GroupBytes(layout_.GroupSteps(0)));
      Value* const left = build_.CreateSub(group[4], build_.getInt64(1));
      return Turn{{next, build_.At(next, layout_.CodesAt()), decoded[1], build_.At(group[3], lanes_stride), left},
                  build_.IsPositive(left)};
    });
  }

 private:
  void WidenHeader(Value* header, Value* to) {
    Value* const factors =
        scheme_.HasGlobalScale() ? build_.PointerArgument(offsetof(WidenCodesArgs, lane_scales)) : nullptr;
    const Values scales = LoadWholeScales(build_, layout_, header, factors);
    build_.StorePanelLanes(scales, build_.At(to, int64_t{offsetof(GroupLanes, scale)}));
    if (!scheme_.minimum) return;
    const Values minimums = LoadMinimums(build_, layout_, header);
    build_.StorePanelLanes(minimums, build_.At(to, int64_t{offsetof(GroupLanes, minimum)}));
  }

  // Units of codes while steps are left. Values: the unit, where its first step goes, the steps left.
  Values DecodeSteps(const Values& start) {
    Value* const whole = build_.getInt64(layout_.interleave);
    return build_.Loop("unit", start, [&](const Values& now) {
      Value* const steps = build_.CreateSelect(build_.CreateICmpSLT(now[2], whole), now[2], whole);
      build_.Prefetch(build_.At(now[0], ahead_));
      Value* const to = decoder_.in_units() ? DecodeUnit(now[0], now[1], steps) : DecodeBytes(now[0], now[1]);
      Value* const left = build_.CreateSub(now[2], steps);
      return Turn{{build_.At(now[0], layout_.UnitBytes()), to, left}, build_.IsPositive(left)};
    });
  }

  // Answers where the next step goes, as does DecodeUnit.
  Value* DecodeBytes(Value* unit, Value* to) {
    for (int vector = 0; vector < decoder_.vectors(); ++vector) Store(decoder_.DecodeBytes(unit, vector), vector, to);
    return build_.At(to, kAccumulatorRow);
  }

  // The first `steps` codes of each lane, from the low bits up.
  Value* DecodeUnit(Value* unit, Value* to, Value* steps) {
    Values start = build_.LoadPanelLanes(build_.Ints(build_.lanes()), unit);
    start.insert(start.begin(), {to, steps});
    const Values end = build_.Loop("code", start, [&](const Values& now) {
      Values next = {build_.At(now[0], kAccumulatorRow), build_.CreateSub(now[1], build_.getInt64(1))};
      for (int vector = 0; vector < decoder_.vectors(); ++vector) {
        Value* const units = now[static_cast<size_t>(2 + vector)];
        Store(decoder_.DecodeUnits(units, 0, vector), vector, now[0]);
        next.push_back(build_.CreateLShr(units, static_cast<uint64_t>(scheme_.bits)));
      }
      return Turn{next, build_.IsPositive(next[1])};
    });
    return end[0];
  }

  void Store(Value* values, int vector, Value* to) {
    build_.StoreVector(values, build_.At(to, int64_t{vector} * build_.lanes() * int64_t{sizeof(float)}));
  }

  KernelBuilder& build_;
  CodeDecoder decoder_;
  const ir::CodeLayout& layout_;
  const ir::QuantScheme& scheme_;
  Value* ahead_ = nullptr;  // bytes from the codes to what is asked for
};

}  // namespace

void BuildWidenCodes(KernelBuilder& build, const ir::KernelSpec& spec) { Widening(build, spec).Build(); }

}  // namespace clikart::codegen::llvm_module
