// Staging of codes for integer contractions.

#include <cstddef>

#include "entries.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int64_t kCodes = 4;  // in a dword
constexpr uint32_t kToUnsigned = 0x80808080;
constexpr uint32_t kEvenBytes = 0x00ff00ff;

// Dwords of four codes as they are multiplied: as they are, or as two dwords with the even codes and the odd ones.
Value* Arrange(KernelBuilder& build, ir::DType x, Multiply multiply, Value* dwords) {
  const int count = KernelBuilder::LanesOf(dwords);
  if (x == ir::DType::kInt8) dwords = build.CreateXor(dwords, build.Bits(kToUnsigned, count));
  if (multiply == Multiply::kDot) return dwords;
  Value* const wide = build.CreateZExt(dwords, llvm::FixedVectorType::get(build.getInt64Ty(), count));
  Value* const twice = build.CreateOr(wide, build.CreateShl(wide, 24));
  return build.CreateAnd(build.CreateBitCast(twice, build.Ints(2 * count)), build.Bits(kEvenBytes, 2 * count));
}

}  // namespace

void BuildStageCodes(KernelBuilder& build, ir::DType x, Multiply multiply) {
  const int64_t growth = multiply == Multiply::kDot ? 1 : 2;    // bytes written for a code
  const int vector = build.lanes() / static_cast<int>(growth);  // dwords read at once
  Value* const stride = build.IntArgument(offsetof(StageArgs, x_stride));
  Value* const out_stride = build.IntArgument(offsetof(StageArgs, out_stride));
  Value* const count = build.IntArgument(offsetof(StageArgs, count));
  Value* const zero = build.getInt64(0);
  const auto rounded_down = [&](int64_t codes) { return build.CreateAnd(count, build.getInt64(~(codes - 1))); };
  Value* const vectors_end = rounded_down(kCodes * vector);
  Value* const dwords_end = rounded_down(kCodes);

  const auto copy_row = [&](Value* from, Value* to) {
    const auto place = [&](Value* at) { return build.At(to, build.CreateMul(at, build.getInt64(growth))); };
    const auto run = [&](Value* first, Value* end, int dwords) {
      build.When(build.CreateICmpSLT(first, end), {}, [&](const Values&) {
        build.Loop("codes", {first}, [&](const Values& now) {
          Value* const codes = build.LoadVector(build.Ints(dwords), build.At(from, now[0]));
          build.StoreVector(Arrange(build, x, multiply, codes), place(now[0]));
          Value* const next = build.CreateAdd(now[0], build.getInt64(kCodes * dwords));
          return Turn{{next}, build.CreateICmpSLT(next, end)};
        });
        return Values{};
      });
    };
    run(zero, vectors_end, vector);
    run(vectors_end, dwords_end, 1);
    // One to three codes are left. They are followed by zeros, which weights of zero are multiplied by.
    build.When(build.CreateICmpSLT(dwords_end, count), {}, [&](const Values&) {
      const Values last = build.Loop("last", {dwords_end, build.getInt32(0)}, [&](const Values& now) {
        Value* const code =
            build.CreateZExt(build.CreateLoad(build.getInt8Ty(), build.At(from, now[0])), build.getInt32Ty());
        Value* const shift =
            build.CreateTrunc(build.CreateShl(build.CreateSub(now[0], dwords_end), 3), build.getInt32Ty());
        Value* const next = build.CreateAdd(now[0], build.getInt64(1));
        return Turn{{next, build.CreateOr(now[1], build.CreateShl(code, shift))}, build.CreateICmpSLT(next, count)};
      });
      Value* const codes = build.CreateBitCast(last[1], build.Ints(1));
      build.StoreVector(Arrange(build, x, multiply, codes), place(dwords_end));
      return Values{};
    });
  };
  const Values start = {build.PointerArgument(offsetof(StageArgs, x)), build.PointerArgument(offsetof(StageArgs, out)),
                        build.IntArgument(offsetof(StageArgs, rows))};
  build.Loop("row", start, [&](const Values& now) {
    copy_row(now[0], now[1]);
    Value* const left = build.CreateSub(now[2], build.getInt64(1));
    return Turn{{build.At(now[0], stride), build.At(now[1], out_stride), left}, build.IsPositive(left)};
  });
}

}  // namespace clikart::codegen::llvm_module
