// Codes to tiles of bf16 pairs, and what a group's sums become in the accumulators.

#include <cstddef>

#include "amx_code.h"
#include "code_tile_driver.h"

namespace clikart::codegen {
namespace {

constexpr uint8_t kOrAnd = 0xf8;  // vpternlogd: a | (b & c)
constexpr int kPool = 8;          // registers that decode

}  // namespace

int32_t AmxCode::PairCodes(const CodeFormat& format) {
  const int32_t entry = Begin();
  const Reg64 header = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 steps = TakePointer();
  const Reg64 lanes_to = TakePointer();
  const Reg64 lane_scales = TakePointer();
  const Reg64 ahead = TakePointer();
  const Reg64 groups = TakePointer();
  const int first = TakeVectors(kPool);
  const Vector pair = TakeVector();
  CodeDecoder decoder{.format = format, .offsets = offsetof(WidenCodesArgs, offsets)};
  decoder.first = TakeVectors(DecoderRegisters(decoder));
  const int unit = format.unit();

  const auto decode = [&](int step) {
    BeginCode(decoder, step % unit);
    return DecodeCode(decoder, from + step / unit * format.unit_bytes(), step % unit, 0, 0, first, kPool);
  };
  // Numbers that bf16 has: what is cut off an f32 is zeros.
  const auto decode_pairs = [&](int count) {
    for (int i = 0; i < count; ++i) {
      vpsrld(pair, decode(2 * i), 16);
      vpternlogd(pair, decode(2 * i + 1), Constant(0xffff0000), kOrAnd);
      vmovups(ptr[to + i * static_cast<int>(kTileRowBytes)], pair);
    }
    add(from, 2 * count / unit * format.unit_bytes());
    add(to, count * static_cast<int>(kTileRowBytes));
  };

  mov(header, Argument(offsetof(WidenCodesArgs, header)));
  mov(from, Argument(offsetof(WidenCodesArgs, codes)));
  mov(to, Argument(offsetof(WidenCodesArgs, out)));
  mov(lanes_to, Argument(offsetof(WidenCodesArgs, lanes)));
  mov(lane_scales, Argument(offsetof(WidenCodesArgs, lane_scales)));
  mov(ahead, Argument(offsetof(WidenCodesArgs, prefetch)));
  mov(groups, Argument(offsetof(WidenCodesArgs, groups)));
  BeginDecoding(decoder);
  Label group, units, rest, last, next;
  L(group);
  LoadGroup(format, header, lanes_to, lane_scales, first, kPool);
  BeginCodes(decoder, header, 0, 0, first);
  mov(steps, Argument(offsetof(WidenCodesArgs, steps)));
  // A cache line at a time: four bytes, or a unit of other codes, the last one decoded to its end.
  constexpr int kBytes = 4;
  const bool bytes = unit == 1;
  const int at_once = bytes ? kBytes : unit;
  if (bytes) {
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
  decode_pairs(at_once / 2);
  sub(steps, at_once);
  bytes ? jge(units, T_NEAR) : jg(units, T_NEAR);
  EndLoop("pair codes", units_at, 0);
  if (bytes) {
    L(rest);
    add(steps, at_once);
    cmp(steps, 2);
    jl(last, T_NEAR);
    decode_pairs(1);
    sub(steps, 2);
    L(last);
    test(steps, steps);
    jz(next, T_NEAR);
    vpsrld(pair, decode(0), 16);
    vmovups(ptr[to], pair);
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

int32_t AmxCode::AddTileGroup(const ir::QuantScheme& scheme) {
  const int32_t entry = Begin();
  const Reg64 t = TakePointer();
  const Reg64 c = TakePointer();
  const Reg64 sums = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 lanes = TakePointer();
  const Vector scale = TakeVector();
  const Vector minimum = TakeVector();
  const Vector sum = TakeVector();
  mov(t, Argument(offsetof(TileGroupArgs, t)));
  mov(c, Argument(offsetof(TileGroupArgs, c)));
  mov(lanes, Argument(offsetof(TileGroupArgs, lanes)));
  mov(rows, Argument(offsetof(TileGroupArgs, rows)));
  vmovups(scale, ptr[lanes + static_cast<int>(offsetof(GroupLanes, scale))]);
  if (scheme.minimum) {
    mov(sums, Argument(offsetof(TileGroupArgs, sums)));
    vmovups(minimum, ptr[lanes + static_cast<int>(offsetof(GroupLanes, minimum))]);
  }
  Label row;
  align(16);
  L(row);
  vmovups(sum, ptr[c]);
  vfmadd231ps(sum, scale, ptr[t]);
  if (scheme.minimum) {
    vfmadd231ps(sum, minimum, ptr_b[sums]);
    add(sums, static_cast<int>(sizeof(float)));
  }
  vmovups(ptr[c], sum);
  add(t, static_cast<int>(kTileRowBytes));
  add(c, static_cast<int>(kTileRowBytes));
  dec(rows);
  jnz(row, T_NEAR);
  Return();
  return entry;
}

}  // namespace clikart::codegen
