// Codes to floats, for every width, and the entries that widen and gather.

#include <algorithm>
#include <cstddef>

#include "code_driver.h"
#include "kernel_code.h"

namespace clikart::codegen {
namespace {

constexpr int kFloatBytes = sizeof(float);

}  // namespace

Xbyak::Xmm KernelCode::DecodeCode(CodeDecoder& decoder, const RegExp& unit, int code, int panel, int half, int first,
                                  int count) {
  const CodeFormat& format = decoder.format;
  const RegExp from = unit + half * format.unit_bytes() / halves();
  Vector value = Register(first);
  if (format.decoding.tabled()) {
    DecodeTabled(decoder, from, code, value, panel, half);
  } else {
    format.decoding.is_signed ? vpmovsxbd(value, ptr[from]) : vpmovzxbd(value, ptr[from]);
    value = RunProgram(format.decoding.program, first, count);
  }
  if (format.scheme.HasZeroPoint()) SubtractZeroPoints(decoder, panel, half, value);
  return value;
}

void KernelCode::LoadGroup(const CodeFormat& format, const RegExp& header, const RegExp& to, const RegExp& lane_scales,
                           int first, int count) {
  const auto scale_bytes = static_cast<int>(format.layout.ScaleBytes());
  const Vector value = Register(first);
  for (int half = 0; half < halves(); ++half) {
    const int at = half * lanes() * kFloatBytes;
    const auto lane = half * lanes();
    LoadScales(format.scheme.scale_type, header + lane * scale_bytes, first, count);
    if (format.scheme.HasGlobalScale()) vmulps(value, value, ptr[lane_scales + at]);
    vmovups(ptr[to + static_cast<int>(offsetof(GroupLanes, scale)) + at], value);
    if (!format.scheme.minimum) continue;
    LoadScales(format.scheme.scale_type, header + static_cast<int>(format.layout.MinimumAt(lane)), first, count);
    vmovups(ptr[to + static_cast<int>(offsetof(GroupLanes, minimum)) + at], value);
  }
}

int32_t KernelCode::WidenCodes(const CodeFormat& format) {
  const int32_t entry = Begin();
  const Reg64 header = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 steps = TakePointer();
  const Reg64 lanes_to = TakePointer();
  const Reg64 lane_scales = TakePointer();
  const Reg64 ahead = TakePointer();
  const Reg64 groups = TakePointer();
  constexpr int kPool = 8;
  const int first = TakeVectors(kPool);
  CodeDecoder decoder{.format = format, .offsets = offsetof(WidenCodesArgs, offsets)};
  decoder.first = TakeVectors(DecoderRegisters(decoder));
  const int unit = format.unit();
  const int vector_bytes = lanes() * kFloatBytes;
  const auto decode = [&](int units) {
    for (int step = 0; step < units * unit; ++step) {
      BeginCode(decoder, step % unit);
      for (int half = 0; half < halves(); ++half) {
        const Vector value =
            DecodeCode(decoder, from + step / unit * format.unit_bytes(), step % unit, 0, half, first, kPool);
        vmovups(ptr[to + (step * halves() + half) * vector_bytes], value);
      }
    }
    add(from, units * format.unit_bytes());
  };

  mov(header, Argument(offsetof(WidenCodesArgs, header)));
  mov(from, Argument(offsetof(WidenCodesArgs, codes)));
  mov(to, Argument(offsetof(WidenCodesArgs, out)));
  mov(lanes_to, Argument(offsetof(WidenCodesArgs, lanes)));
  mov(lane_scales, Argument(offsetof(WidenCodesArgs, lane_scales)));
  mov(ahead, Argument(offsetof(WidenCodesArgs, prefetch)));
  mov(groups, Argument(offsetof(WidenCodesArgs, groups)));
  BeginDecoding(decoder);
  Label group, units, rest, singles, next;
  L(group);
  LoadGroup(format, header, lanes_to, lane_scales, first, kPool);
  for (int half = 0; half < halves(); ++half) BeginCodes(decoder, header, 0, half, first);
  mov(steps, Argument(offsetof(WidenCodesArgs, steps)));
  // Bytes go four at a time and one by one; other codes in whole units, the last one decoded to its end.
  constexpr int kBytes = 4;
  const int at_once = unit > 1 ? unit : kBytes;
  decoder.position = -1;
  if (unit == 1) {
    sub(steps, at_once);
    jl(rest, T_NEAR);
  } else {
    test(steps, steps);
    jz(next, T_NEAR);
  }
  align(16);
  L(units);
  const size_t units_at = getSize();
  prefetcht0(ptr[from + ahead]);
  decode(at_once / unit);
  if (unit == 1) {
    add(to, at_once * halves() * vector_bytes);
    sub(steps, at_once);
    jge(units, T_NEAR);
    EndLoop("widen codes", units_at, 0);
    L(rest);
    add(steps, at_once);
    jz(next, T_NEAR);
    L(singles);
    decode(1);
    add(to, halves() * vector_bytes);
    dec(steps);
    jnz(singles, T_NEAR);
  } else {
    Label whole;
    add(to, at_once * halves() * vector_bytes);
    sub(steps, at_once);
    jg(units, T_NEAR);
    EndLoop("widen codes", units_at, 0);
    // Back to where the group ends.
    if (!format.whole_units) {
      imul(steps, steps, halves() * vector_bytes);
      add(to, steps);
    }
  }
  L(next);
  add(header, static_cast<int>(format.group_bytes));
  lea(from, ptr[header + format.codes_at()]);
  add(lanes_to, Argument(offsetof(WidenCodesArgs, lanes_stride)));
  dec(groups);
  jnz(group, T_NEAR);
  Return();
  return entry;
}

int32_t KernelCode::Gather(ir::DType x) {
  const int32_t entry = Begin();
  const Reg64 columns = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 out = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 count = TakePointer();
  const Reg64 column = TakePointer();
  const Xbyak::Xmm value(TakeVectors(1));
  Label next_row, next;
  mov(from, Argument(offsetof(GatherArgs, x)));
  mov(out, Argument(offsetof(GatherArgs, out)));
  mov(rows, Argument(offsetof(GatherArgs, rows)));
  L(next_row);
  mov(columns, Argument(offsetof(GatherArgs, columns)));
  mov(count, Argument(offsetof(GatherArgs, count)));
  mov(to, out);
  L(next);
  mov(column.cvt32(), dword[columns]);
  if (x == ir::DType::kFloat32) {
    mov(column.cvt32(), dword[from + column * 4]);
  } else {
    movzx(column.cvt32(), word[from + column * 2]);
  }
  if (x == ir::DType::kBFloat16) shl(column.cvt32(), 16);
  if (x == ir::DType::kFloat16) {
    vmovd(value, column.cvt32());
    vcvtph2ps(value, value);
    vmovd(dword[to], value);
  } else {
    mov(dword[to], column.cvt32());
  }
  add(columns, kFloatBytes);
  add(to, kFloatBytes);
  dec(count);
  jnz(next);
  add(from, Argument(offsetof(GatherArgs, x_stride)));
  add(out, Argument(offsetof(GatherArgs, out_stride)));
  dec(rows);
  jnz(next_row);
  Return();
  return entry;
}

}  // namespace clikart::codegen
