// Quantized weights to floats: a group's header and its codes (ir/code_layout.h), one group after the other.

#include <cstddef>

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "code_driver.h"
#include "entries.h"
#include "group_header.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "program.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int kIndexBits = 4;  // of a table of ir::kLevels

class Widening {
 public:
  Widening(KernelBuilder& build, const ir::KernelSpec& spec)
      : build_(build),
        layout_(ir::CodeLayoutOf(spec)),
        scheme_(layout_.scheme),
        decoding_(ir::DecodingOf(scheme_)),
        lanes_(build.lanes()) {}

  void Build() {
    Value* const lanes_stride = build_.IntArgument(offsetof(WidenCodesArgs, lanes_stride));
    Value* const steps = build_.IntArgument(offsetof(WidenCodesArgs, steps));
    if (decoding_.tabled() && lanes_ == 4) table_ = build_.Constants(decoding_.levels);
    ahead_ = build_.IntArgument(offsetof(WidenCodesArgs, prefetch));
    const Values start = {build_.PointerArgument(offsetof(WidenCodesArgs, header)),
                          build_.PointerArgument(offsetof(WidenCodesArgs, codes)),
                          build_.PointerArgument(offsetof(WidenCodesArgs, out)),
                          build_.PointerArgument(offsetof(WidenCodesArgs, lanes)),
                          build_.IntArgument(offsetof(WidenCodesArgs, groups))};
    build_.Loop("group", start, [&](const Values& group) {
      WidenHeader(group[0], group[3]);
      zero_points_ = ZeroPoints(group[0]);
      const Values decoded = build_.When(build_.IsPositive(steps), {group[1], group[2], steps},
                                         [&](const Values& first) { return DecodeSteps(first); });
      Value* const next = build_.At(group[0], layout_.GroupBytes(layout_.GroupSteps(0)));
      Value* const left = build_.CreateSub(group[4], build_.getInt64(1));
      return Turn{{next, build_.At(next, layout_.CodesAt()), decoded[1], build_.At(group[3], lanes_stride), left},
                  build_.IsPositive(left)};
    });
  }

 private:
  // Calls `visit` with the first lane of each vector.
  template <typename Visit>
  void EachVector(const Visit& visit) {
    for (int64_t lane = 0; lane < ir::kPanelLanes; lane += lanes_) visit(lane);
  }

  void WidenHeader(Value* header, Value* to) {
    Values scales = LoadScales(build_, layout_, header);
    if (scheme_.HasGlobalScale()) {
      Value* const second = build_.PointerArgument(offsetof(WidenCodesArgs, lane_scales));
      const Values factors = build_.LoadPanelLanes(build_.Floats(lanes_), second);
      for (size_t i = 0; i < scales.size(); ++i) scales[i] = build_.CreateFMul(scales[i], factors[i]);
    }
    build_.StorePanelLanes(scales, build_.At(to, int64_t{offsetof(GroupLanes, scale)}));
    if (!scheme_.minimum) return;
    const Values minimums = LoadMinimums(build_, layout_, header);
    build_.StorePanelLanes(minimums, build_.At(to, int64_t{offsetof(GroupLanes, minimum)}));
  }

  Values ZeroPoints(Value* header) {
    Values vectors = LoadZeroPoints(build_, layout_, header);
    for (Value*& vector : vectors) vector = build_.CreateSIToFP(vector, build_.Floats(lanes_));
    return vectors;
  }

  // Units of codes while steps are left. Values: the unit, where its first step goes, the steps left.
  Values DecodeSteps(const Values& start) {
    Value* const whole = build_.getInt64(layout_.interleave);
    return build_.Loop("unit", start, [&](const Values& now) {
      Value* const steps = build_.CreateSelect(build_.CreateICmpSLT(now[2], whole), now[2], whole);
      build_.Prefetch(build_.At(now[0], ahead_));
      Value* const to = decoding_.tabled() ? DecodeUnit(now[0], now[1], steps) : DecodeBytes(now[0], now[1]);
      Value* const left = build_.CreateSub(now[2], steps);
      return Turn{{build_.At(now[0], layout_.UnitBytes()), to, left}, build_.IsPositive(left)};
    });
  }

  // Answers where the next step goes, as does DecodeUnit.
  Value* DecodeBytes(Value* unit, Value* to) {
    EachVector([&](int64_t lane) {
      Value* const codes = LoadBytes(build_, build_.At(unit, lane), decoding_.is_signed);
      Value* const input = build_.CreateBitCast(codes, build_.Floats(lanes_));
      StoreValues(LowerProgram(build_, decoding_.program, {&input, 1}), lane, to);
    });
    return build_.At(to, kAccumulatorRow);
  }

  // The first `steps` codes of each lane, from the low bits up.
  Value* DecodeUnit(Value* unit, Value* to, Value* steps) {
    Values start = build_.LoadPanelLanes(build_.Ints(lanes_), unit);
    start.insert(start.begin(), {to, steps});
    const Values end = build_.Loop("code", start, [&](const Values& now) {
      Values next = {build_.At(now[0], kAccumulatorRow), build_.CreateSub(now[1], build_.getInt64(1))};
      EachVector([&](int64_t lane) {
        Value* const codes = now[static_cast<size_t>(2 + lane / lanes_)];
        StoreValues(LevelsOf(codes), lane, now[0]);
        next.push_back(build_.CreateLShr(codes, static_cast<uint64_t>(scheme_.bits)));
      });
      return Turn{next, build_.IsPositive(next[1])};
    });
    return end[0];
  }

  void StoreValues(Value* values, int64_t lane, Value* to) {
    if (!zero_points_.empty()) {
      values = build_.CreateFSub(values, zero_points_[static_cast<size_t>(lane / lanes_)]);
    }
    build_.StoreVector(values, build_.At(to, lane * int64_t{sizeof(float)}));
  }

  // By the low kIndexBits of each lane: the table repeats its levels where codes are shorter.
  Value* LevelsOf(Value* codes) {
    switch (lanes_) {
      case 16:
        return build_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {Levels(0), codes});
      case 8: {
        const auto half = [&](int first) {
          return build_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {Levels(first), codes});
        };
        Value* const top_bit = build_.CreateShl(codes, 32 - kIndexBits);
        return build_.CreateSelect(build_.CreateICmpSLT(top_bit, build_.Bits(0, lanes_)), half(8), half(0));
      }
      default:
        return LookUp(build_.CreateAnd(codes, build_.Bits(ir::kLevels - 1, lanes_)));
    }
  }

  // A vector of the table from `first` on.
  Value* Levels(int first) {
    return llvm::ConstantDataVector::get(
        build_.getContext(), llvm::ArrayRef<float>(decoding_.levels).slice(static_cast<size_t>(first), lanes_));
  }

  Value* LookUp(Value* indices) {
    Value* levels = llvm::PoisonValue::get(build_.Floats(lanes_));
    for (int lane = 0; lane < lanes_; ++lane) {
      Value* const index = build_.CreateExtractElement(indices, static_cast<uint64_t>(lane));
      Value* const place = build_.CreateGEP(build_.getFloatTy(), table_, build_.CreateZExt(index, build_.getInt64Ty()));
      levels = build_.CreateInsertElement(levels, build_.CreateLoad(build_.getFloatTy(), place),
                                          static_cast<uint64_t>(lane));
    }
    return levels;
  }

  KernelBuilder& build_;
  const ir::CodeLayout layout_;
  const ir::QuantScheme& scheme_;
  const ir::Decoding& decoding_;
  const int lanes_;
  Value* table_ = nullptr;  // in memory, where no instruction takes lanes from one
  Value* ahead_ = nullptr;  // bytes from the codes to what is asked for
  Values zero_points_;      // of the group at hand
};

}  // namespace

void BuildWidenCodes(KernelBuilder& build, const ir::KernelSpec& spec) { Widening(build, spec).Build(); }

}  // namespace clikart::codegen::llvm_module
