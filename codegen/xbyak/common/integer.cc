// What integer contractions do otherwise: staging of codes, multiplying, and the ends of the epilogue.

#include <cstddef>

#include "kernel_code.h"

namespace clikart::codegen {
namespace {

constexpr int kCodesPerDword = 4;
constexpr uint32_t kToUnsigned = 0x80808080;  // int8 codes plus 128
constexpr uint32_t kEvenBytes = 0x00ff00ff;

}  // namespace

void KernelCode::MultiplyAdd(Multiply multiply, const Vector& acc, const Vector& step, const Xbyak::Operand& weight,
                             const Vector& spare) {
  switch (multiply) {
    case Multiply::kFma:
      vfmadd231ps(acc, step, weight);
      break;
    case Multiply::kDotBf16:
      vdpbf16ps(acc, step, weight);
      break;
    case Multiply::kDot:
      vpdpbusd(acc, step, weight, dot_encoding());
      break;
    case Multiply::kWords:
      vpmaddwd(spare, step, weight);
      vpaddd(acc, acc, spare);
      break;
  }
}

int32_t KernelCode::StageCodes(ir::DType x, Multiply multiply) {
  const int32_t entry = Begin();
  const Reg64 count = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 out = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 row = TakePointer();
  const Reg64 four = TakePointer();
  const Reg64 odd = TakePointer();
  const Vector value = TakeVector();
  const Vector spare = TakeVector();
  const bool words = multiply == Multiply::kWords;
  const int vector_bytes = lanes() * static_cast<int>(sizeof(float));
  const int codes = words ? vector_bytes / 2 : vector_bytes;  // that make a vector
  const bool is_signed = x == ir::DType::kInt8;

  // Four codes in a register to memory.
  const auto put_four = [&] {
    if (is_signed) xor_(four.cvt32(), kToUnsigned);
    if (!words) {
      mov(dword[to], four.cvt32());
      add(to, kCodesPerDword);
      return;
    }
    mov(odd.cvt32(), four.cvt32());
    shr(odd.cvt32(), 8);
    and_(four.cvt32(), kEvenBytes);
    and_(odd.cvt32(), kEvenBytes);
    mov(dword[to], four.cvt32());
    mov(dword[to + kCodesPerDword], odd.cvt32());
    add(to, 2 * kCodesPerDword);
  };

  mov(out, Argument(offsetof(StageArgs, out)));
  mov(rows, Argument(offsetof(StageArgs, rows)));
  mov(row, Argument(offsetof(StageArgs, x)));
  Label next_row, body, tail, dwords, last, no_pair, no_single, row_done;
  L(next_row);
  mov(to, out);
  mov(from, row);
  mov(count, Argument(offsetof(StageArgs, count)));
  sub(count, codes);
  jl(tail, T_NEAR);
  L(body);
  const size_t body_at = getSize();
  if (words) {
    // Each dword twice, the second time a byte further down, and of both the even bytes.
    vpmovzxdq(value, ptr[from]);
    vpsllq(spare, value, 24);
    vorps(value, value, spare);
    vandps(value, value, Constant(kEvenBytes));
    if (is_signed) vxorps(value, value, Constant(kToUnsigned & kEvenBytes));
  } else {
    vmovups(value, ptr[from]);
    if (is_signed) vxorps(value, value, Constant(kToUnsigned));
  }
  vmovups(ptr[to], value);
  add(from, codes);
  add(to, vector_bytes);
  sub(count, codes);
  jge(body);
  EndLoop("stage", body_at, 0);
  L(tail);
  add(count, codes - kCodesPerDword);
  jl(last, T_NEAR);
  L(dwords);
  mov(four.cvt32(), dword[from]);
  put_four();
  add(from, kCodesPerDword);
  sub(count, kCodesPerDword);
  jge(dwords);
  L(last);
  // One to three codes are left; what stands behind them is multiplied by zero.
  test(count.cvt32(), kCodesPerDword - 1);
  jz(row_done, T_NEAR);
  xor_(four.cvt32(), four.cvt32());
  test(count.cvt32(), 2);
  jz(no_pair);
  movzx(four.cvt32(), word[from]);
  test(count.cvt32(), 1);
  jz(no_single);
  movzx(odd.cvt32(), byte[from + 2]);
  shl(odd.cvt32(), 16);
  or_(four.cvt32(), odd.cvt32());
  jmp(no_single);
  L(no_pair);
  movzx(four.cvt32(), byte[from]);
  L(no_single);
  put_four();
  L(row_done);
  add(row, Argument(offsetof(StageArgs, x_stride)));
  add(out, Argument(offsetof(StageArgs, out_stride)));
  dec(rows);
  jnz(next_row, T_NEAR);
  Return();
  return entry;
}

void KernelCode::LoadSums(const ir::KernelSpec& spec, const Vector& to, const RegExp& from, const RegExp& terms,
                          const Vector& spare) {
  vmovups(to, ptr[from]);
  if (!NeedsInt64(spec)) {  // else the driver has made them f32
    vpaddd(to, to, ptr[terms + static_cast<int>(offsetof(PanelTerms, compensation))]);
    vcvtdq2ps(to, to);
  }
  const Address scale = ptr[terms + static_cast<int>(offsetof(PanelTerms, scale))];
  if (spec.bias == ir::BiasKind::kNone) return vmulps(to, to, scale);
  vmovups(spare, ptr[terms + static_cast<int>(offsetof(PanelTerms, bias))]);
  vfmadd132ps(to, spare, scale);
}

void KernelCode::Requantize(const Vector& value, const Vector& spare) {
  const auto argument = [&](size_t offset) {
    vbroadcastss(spare, Argument(offsetof(EpilogueArgs, requantization) + offset));
  };
  argument(offsetof(Requantization, scale));
  vdivps(value, value, spare);
  argument(offsetof(Requantization, low));
  vmaxps(value, value, spare);  // NaN becomes the lowest code
  argument(offsetof(Requantization, high));
  vminps(value, value, spare);
  vcvtps2dq(value, value);
  argument(offsetof(Requantization, zero_point));
  vpaddd(value, value, spare);
}

}  // namespace clikart::codegen
