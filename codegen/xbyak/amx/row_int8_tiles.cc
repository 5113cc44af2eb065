// compute="int8" by matrix tiles: codes of less than a byte to tiles, and what a group's sums become in the outputs.

#include <cstddef>

#include "amx_code.h"
#include "row_int8_tile_driver.h"

namespace clikart::codegen {

int32_t AmxCode::UnpackTiles(const ir::KernelSpec& spec) {
  const int32_t entry = Begin();
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec);
  const int bits = layout.scheme.bits;
  const int parts = layout.interleave / kPartBytes;
  const auto line = static_cast<int>(kTileRowBytes);
  const Reg64 header = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 units = TakePointer();
  const Reg64 headers_to = TakePointer();
  const Reg64 ahead = TakePointer();
  const Reg64 groups = TakePointer();
  const int pool = TakeVectors(kHeaderRegisters);
  const Vector codes = Register(pool), part_codes = Register(pool + 1);
  const Vector mask = TakeVector();

  mov(header, Argument(offsetof(UnpackTilesArgs, header)));
  mov(from, Argument(offsetof(UnpackTilesArgs, codes)));
  mov(headers_to, Argument(offsetof(UnpackTilesArgs, headers)));
  mov(ahead, Argument(offsetof(UnpackTilesArgs, prefetch)));
  mov(groups, Argument(offsetof(UnpackTilesArgs, groups)));
  if (bits < 8) LoadConstant(mask, PartMask(layout.scheme));
  Label group, unit;
  L(group);
  prefetcht0(ptr[header + ahead]);
  KeepHeader(layout, header, headers_to, pool);
  if (bits < 8) {
    mov(to, Argument(offsetof(UnpackTilesArgs, out)));
    mov(units, Argument(offsetof(UnpackTilesArgs, units)));
    align(16);
    L(unit);
    const size_t unit_at = getSize();
    prefetcht0(ptr[from + ahead]);
    vmovups(codes, ptr[from]);
    for (int part = 0; part < parts; ++part) {
      if (part > 0) vpsrld(codes, codes, static_cast<uint8_t>(bits));
      vpandd(part_codes, codes, mask);
      vmovups(ptr[to + part * line], part_codes);
    }
    add(from, line);
    add(to, parts * line);
    dec(units);
    jnz(unit);
    EndLoop("unpack", unit_at, 0);
    mov(to, Argument(offsetof(UnpackTilesArgs, out_stride)));
    add(Argument(offsetof(UnpackTilesArgs, out)), to);
  }
  add(header, static_cast<int>(layout.GroupBytes(LongestGroup(spec))));
  lea(from, ptr[header + static_cast<int>(layout.CodesAt())]);
  add(headers_to, Argument(offsetof(UnpackTilesArgs, headers_stride)));
  dec(groups);
  jnz(group, T_NEAR);
  Return();
  return entry;
}

int32_t AmxCode::AddTileSums(const ir::KernelSpec& spec) {
  const int32_t entry = Begin();
  constexpr int kAtOnce = 4;  // rows
  const Correction correction = CorrectionOf(*spec.scheme);
  const bool words = LongestGroup(spec) <= kWordGroup;
  const auto line = static_cast<int>(kTileRowBytes);
  const Reg64 sums = TakePointer();
  const Reg64 c = TakePointer();
  const Reg64 corrections = TakePointer();
  const Reg64 row_scales = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 header = TakePointer();
  const Vector scale = TakeVector();
  const Vector other = TakeVector();  // minimums or zero points
  const int first_sum = TakeVectors(kAtOnce), first_product = TakeVectors(kAtOnce);

  // As vectors do it in registers (KernelCode::FinishGroup).
  const auto add_row = [&](int row) {
    const Vector sum = Register(first_sum + row), product = Register(first_product + row);
    const Address row_correction = ptr_b[corrections + row * 4], row_scale = ptr_b[row_scales + row * 4];
    const Address output = ptr[c + row * line];
    vmovups(sum, ptr[sums + row * line]);
    if (correction == Correction::kMidpoint) {
      vpaddd(sum, sum, row_correction);
    } else if (correction == Correction::kZeroPoints && words) {
      vpbroadcastd(product, ptr[corrections + row * 4]);
      vpmaddwd(product, product, other);
      vpaddd(sum, sum, product);
    } else if (correction == Correction::kZeroPoints) {
      vpmulld(product, other, row_correction);
      vpaddd(sum, sum, product);
    }
    vcvtdq2ps(sum, sum);
    vmulps(product, scale, row_scale);
    vfmadd213ps(sum, product, output);
    if (correction == Correction::kMinimums) {
      vmulps(product, other, row_scale);
      vfmadd231ps(sum, product, row_correction);
    }
    vmovups(output, sum);
  };
  const auto add_rows = [&](int count) {
    for (int row = 0; row < count; ++row) add_row(row);
    add(sums, count * line);
    add(c, count * line);
    add(corrections, count * 4);
    add(row_scales, count * 4);
  };

  mov(sums, Argument(offsetof(TileSumsArgs, sums)));
  mov(c, Argument(offsetof(TileSumsArgs, c)));
  mov(corrections, Argument(offsetof(TileSumsArgs, corrections)));
  mov(row_scales, Argument(offsetof(TileSumsArgs, row_scales)));
  mov(rows, Argument(offsetof(TileSumsArgs, rows)));
  mov(header, Argument(offsetof(TileSumsArgs, header)));
  vmovups(scale, ptr[header + static_cast<int>(offsetof(GroupHeader, scales))]);
  static_assert(offsetof(GroupHeader, minimums) == offsetof(GroupHeader, zero_points));
  if (correction != Correction::kMidpoint) {
    vmovups(other, ptr[header + static_cast<int>(offsetof(GroupHeader, minimums))]);
  }
  Label several, rest, one, done;
  sub(rows, kAtOnce);
  jl(rest, T_NEAR);
  align(16);
  L(several);
  const size_t several_at = getSize();
  add_rows(kAtOnce);
  sub(rows, kAtOnce);
  jge(several, T_NEAR);
  EndLoop("add sums", several_at, 0);
  L(rest);
  add(rows, kAtOnce);
  jz(done, T_NEAR);
  L(one);
  const size_t one_at = getSize();
  add_rows(1);
  dec(rows);
  jnz(one, T_NEAR);
  EndLoop("add sums, one by one", one_at, 0);
  L(done);
  Return();
  return entry;
}

}  // namespace clikart::codegen
