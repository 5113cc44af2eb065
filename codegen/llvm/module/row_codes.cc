// compute="int8": rows of x as codes, in the order in which units of weight codes are multiplied.

#include <cstddef>
#include <iterator>

#include "clikart/ir/code_layout.h"
#include "entries.h"
#include "row_int8_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int64_t kRun = 16;  // codes that are made at once: whole units of any width
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kQuietNan = 0x7fc00000;
constexpr float kMostCode = 127.0f;

class Quantization {
 public:
  Quantization(KernelBuilder& build, const ir::KernelSpec& spec, int step)
      : build_(build),
        layout_(ir::CodeLayoutOf(spec)),
        x_(spec.order == ir::InputOrder::kNatural ? spec.x : ir::DType::kFloat32),
        x_bytes_(static_cast<int64_t>(ir::SizeOf(x_))),
        group_(LongestGroup(spec)),
        step_(step),
        lanes_(build.lanes()) {}

  void Build() {
    Value* const x_stride = Int(offsetof(QuantizeArgs, x_stride));
    Value* const codes_stride = Int(offsetof(QuantizeArgs, codes_stride));
    // What moves on: x, codes, scales and corrections.
    constexpr size_t kMoving[] = {offsetof(QuantizeArgs, x), offsetof(QuantizeArgs, codes),
                                  offsetof(QuantizeArgs, scales), offsetof(QuantizeArgs, corrections)};
    const auto place = [&](size_t member) { return build_.At(build_.ArgumentStruct(), static_cast<int64_t>(member)); };
    Values start;
    for (const size_t member : kMoving) start.push_back(build_.CreateLoad(build_.getPtrTy(), place(member)));
    start.push_back(Int(offsetof(QuantizeArgs, rows)));
    const Values end = build_.Loop("row", start, [&](const Values& row) {
      Value* const scale = ScaleOf(LargestOf(row[0]));
      build_.CreateAlignedStore(scale, row[2], llvm::Align(4));
      // A scale of zero makes zeros of all inputs, which are then divided by infinity.
      Value* const is_zero = build_.CreateFCmpOEQ(scale, llvm::ConstantFP::get(build_.getFloatTy(), 0.0));
      Value* const divisor = build_.CreateSelect(is_zero, Float(kInfinity), scale);
      QuantizeRow(row[0], row[1], row[3], build_.CreateVectorSplat(lanes_, divisor));
      Value* const left = build_.CreateSub(row[4], build_.getInt64(1));
      return Turn{{build_.At(row[0], x_stride), build_.At(row[1], codes_stride), build_.At(row[2], sizeof(float)),
                   build_.At(row[3], sizeof(int32_t)), left},
                  build_.IsPositive(left)};
    });
    for (size_t i = 0; i < std::size(kMoving); ++i) build_.CreateStore(end[i], place(kMoving[i]));
  }

 private:
  Value* Int(size_t offset) { return build_.IntArgument(offset); }
  Value* Float(uint32_t bits) { return build_.CreateBitCast(build_.getInt32(bits), build_.getFloatTy()); }

  // The bits of the largest magnitude, as an integer: magnitudes are ordered as their bits are, NaNs last.
  Value* LargestOf(Value* x) {
    const auto run = [&](const char* name, int64_t first, int64_t end, int lanes) -> Value* {
      Value* const none = llvm::Constant::getNullValue(build_.Ints(lanes));
      if (first >= end) return build_.getInt32(0);
      const Values last = build_.Loop(name, {build_.getInt64(first), none}, [&](const Values& now) {
        Value* const place = build_.At(x, build_.CreateMul(now[0], build_.getInt64(x_bytes_)));
        Value* const bits = build_.CreateBitCast(build_.LoadWidened(x_, place, lanes), build_.Ints(lanes));
        Value* const magnitude = build_.CreateAnd(bits, build_.Bits(kMagnitude, lanes));
        Value* const largest = build_.CreateSelect(build_.CreateICmpSGT(magnitude, now[1]), magnitude, now[1]);
        Value* const next = build_.CreateAdd(now[0], build_.getInt64(lanes));
        return Turn{{next, largest}, build_.CreateICmpSLT(next, build_.getInt64(end))};
      });
      return build_.CreateIntMaxReduce(last[1], /*IsSigned=*/true);
    };
    const int64_t whole = layout_.depth() / lanes_ * lanes_;
    Value* const of_vectors = run("largest", 0, whole, lanes_);
    Value* const of_rest = run("largest of the rest", whole, layout_.depth(), 1);
    return build_.CreateSelect(build_.CreateICmpSGT(of_rest, of_vectors), of_rest, of_vectors);
  }

  // NaN where the row is not finite.
  Value* ScaleOf(Value* largest) {
    Value* const number = build_.CreateBitCast(largest, build_.getFloatTy());
    Value* const scale = build_.CreateFDiv(number, llvm::ConstantFP::get(build_.getFloatTy(), kMostCode));
    return build_.CreateSelect(build_.CreateICmpSLT(largest, build_.getInt32(kInfinity)), scale, Float(kQuietNan));
  }

  void QuantizeRow(Value* x, Value* codes, Value* correction, Value* divisor) {
    const int64_t groups = layout_.Groups();
    if (groups == 0) return;
    Value* const group = build_.getInt64(group_);
    Value* const stride = Int(offsetof(QuantizeArgs, corrections_stride));
    const Values start = {x, codes, correction, build_.getInt64(layout_.depth()), build_.getInt64(groups)};
    build_.Loop("group", start, [&](const Values& now) {
      Value* const steps = build_.CreateSelect(build_.CreateICmpSLT(now[3], group), now[3], group);
      Value* const none = llvm::Constant::getNullValue(build_.Ints(lanes_));
      const Values first = {now[0], now[1], none, steps};
      const Values made = build_.When(build_.IsPositive(steps), first, [&](const Values& run) {
        return build_.Loop("run", run, [&](const Values& at) { return QuantizeRun(at, divisor); });
      });
      StoreCorrection(build_.CreateAddReduce(made[2]), now[2]);
      Value* const left = build_.CreateSub(now[4], build_.getInt64(1));
      return Turn{{made[0], made[1], build_.At(now[2], stride), build_.CreateSub(now[3], steps), left},
                  build_.IsPositive(left)};
    });
  }

  void StoreCorrection(Value* sum, Value* to) {
    const Correction kind = CorrectionOf(layout_.scheme);
    Value* correction = nullptr;
    if (kind == Correction::kMinimums) {
      correction = build_.CreateSIToFP(sum, build_.getFloatTy());
    } else {
      const int factor = kind == Correction::kMidpoint ? -UnsignedMidpoint(layout_.scheme) : -1;
      correction = build_.CreateMul(sum, build_.getInt32(static_cast<uint32_t>(factor)));
    }
    build_.CreateAlignedStore(correction, to, llvm::Align(4));
  }

  // The next kRun codes, or fewer at a group's end, which zeros follow. Values: where x is read and codes are
  // written, the codes' sums, the steps of the group that are left.
  Turn QuantizeRun(const Values& now, Value* divisor) {
    Value* const whole = build_.getInt64(kRun);
    Value* const is_whole = build_.CreateICmpSGE(now[3], whole);
    Value* const count = build_.CreateSelect(is_whole, whole, now[3]);
    Value* const from = Widened(now[0], count, is_whole);
    Values vectors;
    Value* sums = now[2];
    for (int64_t lane = 0; lane < kRun; lane += lanes_) {
      Value* const x = build_.LoadVector(build_.Floats(lanes_), build_.At(from, lane * int64_t{sizeof(float)}));
      vectors.push_back(CodesOf(build_.CreateFDiv(x, divisor)));
      sums = build_.CreateAdd(sums, vectors.back());
    }
    build_.StoreVector(Ordered(build_.Join(vectors)), now[1]);
    Value* const left = build_.CreateSub(now[3], count);
    Value* const unit = build_.getInt64(layout_.interleave - 1);
    Value* const written = build_.CreateAnd(build_.CreateAdd(count, unit), build_.CreateNot(unit));
    return {{build_.At(now[0], build_.CreateMul(count, build_.getInt64(x_bytes_))),
             build_.At(now[1], build_.CreateMul(written, build_.getInt64(code_bytes()))), sums, left},
            build_.IsPositive(left)};
  }

  // Where kRun inputs lie as f32: x itself, or a copy that is filled up with zeros.
  Value* Widened(Value* x, Value* count, Value* is_whole) {
    Value* const tail = build_.At(build_.ArgumentStruct(), int64_t{offsetof(QuantizeArgs, tail)});
    if (x_ != ir::DType::kFloat32) {
      build_.When(is_whole, {}, [&](const Values&) {
        for (int64_t lane = 0; lane < kRun; lane += lanes_) {
          Value* const value = build_.LoadWidened(x_, build_.At(x, lane * x_bytes_), lanes_);
          build_.StoreVector(value, build_.At(tail, lane * int64_t{sizeof(float)}));
        }
        return Values{};
      });
    }
    build_.When(build_.CreateNot(is_whole), {}, [&](const Values&) {
      build_.StoreVector(llvm::Constant::getNullValue(build_.Floats(kRun)), tail);
      build_.Loop("rest", {build_.getInt64(0)}, [&](const Values& now) {
        Value* const place = build_.At(x, build_.CreateMul(now[0], build_.getInt64(x_bytes_)));
        Value* const to = build_.At(tail, build_.CreateMul(now[0], build_.getInt64(sizeof(float))));
        build_.StoreVector(build_.LoadWidened(x_, place, 1), to);
        Value* const next = build_.CreateAdd(now[0], build_.getInt64(1));
        return Turn{{next}, build_.CreateICmpSLT(next, count)};
      });
      return Values{};
    });
    return x_ == ir::DType::kFloat32 ? build_.CreateSelect(is_whole, x, tail) : tail;
  }

  // Only a subnormal scale is coarse enough for a quotient beyond the most.
  Value* CodesOf(Value* quotients) {
    const auto splat = [&](float value) {
      return build_.CreateVectorSplat(lanes_, llvm::ConstantFP::get(build_.getFloatTy(), value));
    };
    Value* const low = splat(-kMostCode);
    Value* const high = splat(kMostCode);
    Value* bounded = build_.CreateSelect(build_.CreateFCmpOGT(quotients, low), quotients, low);
    bounded = build_.CreateSelect(build_.CreateFCmpOLT(bounded, high), bounded, high);
    return build_.ToInt(bounded);
  }

  int64_t code_bytes() const { return kPartBytes / step_; }

  // kRun codes, the parts of each unit one after the other.
  Value* Ordered(Value* codes) {
    const int parts = layout_.interleave / step_;
    Value* const narrow = build_.CreateTrunc(
        codes, llvm::FixedVectorType::get(build_.getIntNTy(static_cast<unsigned>(8 * code_bytes())), kRun));
    if (parts == 1) return narrow;
    std::vector<int> order;
    for (int to = 0; to < kRun; ++to) {
      const int in_unit = to % layout_.interleave;
      order.push_back(to - in_unit + in_unit / step_ + in_unit % step_ * parts);
    }
    return build_.CreateShuffleVector(narrow, order);
  }

  KernelBuilder& build_;
  const ir::CodeLayout layout_;
  const ir::DType x_;
  const int64_t x_bytes_;
  const int64_t group_;
  const int step_;  // codes of a part
  const int lanes_;
};

}  // namespace

void BuildQuantizeRows(KernelBuilder& build, const ir::KernelSpec& spec, int step) {
  Quantization(build, spec, step).Build();
}

}  // namespace clikart::codegen::llvm_module
