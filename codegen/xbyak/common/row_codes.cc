// compute="int8": rows of x as codes, in the order in which units of weight codes are multiplied.

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernel_code.h"
#include "row_int8_driver.h"

namespace clikart::codegen {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kQuietNan = 0x7fc00000;
constexpr uint32_t k127 = 0x42fe0000;
constexpr uint32_t kMinus127 = 0xc2fe0000;

constexpr int kRun = 16;  // codes that are made at once

// For vpshufb: where each of 16 bytes comes from, so that the parts of a unit of `interleave` codes lie one after the
// other.
std::array<uint64_t, 2> PartOrder(int interleave, int step) {
  const int parts = interleave / step;
  const int bytes = kPartBytes / step;  // of a code
  std::array<uint64_t, 2> order{};
  for (int to = 0; to < kRun; ++to) {
    const int code = to / bytes;
    const int unit = code / interleave, in_unit = code % interleave;
    const int from = unit * interleave + in_unit / step + in_unit % step * parts;
    order[static_cast<size_t>(to / 8)] |= static_cast<uint64_t>(from * bytes + to % bytes) << to % 8 * 8;
  }
  return order;
}

}  // namespace

void KernelCode::ReduceTo32(const Vector& value, const Vector& spare, const Reg64& to,
                            const std::function<void(const Vector&, const Vector&)>& add_to) {
  const Xbyak::Ymm wide(value.getIdx()), wide_spare(spare.getIdx());
  const Xbyak::Xmm low(value.getIdx()), low_spare(spare.getIdx());
  if (value.isZMM()) {
    vextracti64x4(wide_spare, Xbyak::Zmm(value.getIdx()), 1);
    add_to(wide, wide_spare);
  }
  vextracti128(low_spare, wide, 1);
  add_to(low, low_spare);
  for (const uint8_t order : {0x4e, 0xb1}) {
    vpshufd(low_spare, low, order);
    add_to(low, low_spare);
  }
  vmovd(to.cvt32(), low);
}

int32_t KernelCode::QuantizeRows(const ir::KernelSpec& spec, const Schedule& schedule) {
  const int32_t entry = Begin();
  const Reg64 spare = TakePointer();  // rax, which PrepareFirst takes
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 count = TakePointer();
  const Reg64 groups = TakePointer();
  const Reg64 correction = TakePointer();
  const Reg64 correction_stride = TakePointer();
  const std::array runs = {TakeVector(), TakeVector()};  // of a run's codes: one or two
  const Vector largest = TakeVector();                   // then the codes' sums
  const Vector other = TakeVector();
  const Vector mask = TakeVector();
  const Vector divisor = TakeVector();
  const Vector order = TakeVector();
  const Vector& sum = largest;

  const ir::DType x = spec.order == ir::InputOrder::kNatural ? spec.x : ir::DType::kFloat32;
  const int x_bytes = static_cast<int>(ir::SizeOf(x));
  const int interleave = spec.interleave, step = static_cast<int>(schedule.step);
  const int code_bytes = kPartBytes / step;
  const bool reorders = UnitParts(spec, schedule) > 1;
  const int64_t group = LongestGroup(spec);
  const int64_t whole_groups = group == 0 ? 0 : spec.k / group;
  const Correction kind = CorrectionOf(*spec.scheme);

  // The first `lanes` elements, up to a vector, from `at` on.
  const auto load = [&](const Vector& value, const RegExp& at, int64_t count_of) {
    if (count_of >= lanes()) return Load(x, value, at);
    if (count_of <= 0) return vxorps(value, value, value);
    PrepareFirst(static_cast<int>(count_of), mask, other);
    LoadFirst(x, value, at, static_cast<int>(count_of), mask);
  };
  const auto take_largest = [&](const Vector& value) {
    vandps(value, value, Constant(kMagnitude));
    vpmaxud(largest, largest, value);  // magnitudes are ordered as their bits are
  };
  // Codes of the next `codes` inputs, up to kRun; zeros behind them.
  const auto quantize_run = [&](int codes) {
    const int vectors = kRun / lanes();
    for (int i = 0; i < vectors; ++i) {
      const Vector& value = runs[static_cast<size_t>(i)];
      load(value, from + i * lanes() * x_bytes, codes - i * lanes());
      vdivps(value, value, divisor);
      vmaxps(value, value, Constant(kMinus127));
      vminps(value, value, Constant(k127));
      vcvtps2dq(value, value);
      vpaddd(sum, sum, value);
    }
    NarrowCodes(code_bytes, runs[0], runs[1]);
    const Xbyak::Xmm low(runs[0].getIdx()), low_order(order.getIdx());
    const Xbyak::Ymm both(runs[0].getIdx()), both_order(order.getIdx());
    if (code_bytes == 1) {
      if (reorders) vpshufb(low, low, low_order);
      vmovups(ptr[to], low);
    } else {
      if (reorders) vpshufb(both, both, both_order);
      vmovups(ptr[to], both);
    }
    add(from, codes * x_bytes);
    add(to, (codes + interleave - 1) / interleave * interleave * code_bytes);
  };
  const auto quantize_group = [&](int64_t steps) {
    vxorps(sum, sum, sum);
    if (steps >= kRun) {
      Label next;
      mov(count, steps / kRun);
      L(next);
      const size_t next_at = getSize();
      quantize_run(kRun);
      dec(count);
      jnz(next);
      EndLoop("quantize", next_at, 0);
    }
    if (steps % kRun != 0) quantize_run(static_cast<int>(steps % kRun));
    ReduceTo32(sum, other, spare, [&](const Vector& a, const Vector& b) { vpaddd(a, a, b); });
    if (kind == Correction::kMinimums) {
      const Xbyak::Xmm value(other.getIdx());
      vxorps(value, value, value);
      vcvtsi2ss(value, value, spare.cvt32());
      vmovd(dword[correction], value);
    } else {
      imul(spare.cvt32(), spare.cvt32(), kind == Correction::kMidpoint ? -UnsignedMidpoint(*spec.scheme) : -1);
      mov(dword[correction], spare.cvt32());
    }
    add(correction, correction_stride);
  };

  if (reorders) {
    const auto [low_bytes, high_bytes] = PartOrder(interleave, step);
    const Xbyak::Xmm low(order.getIdx());
    mov(spare, low_bytes);
    vmovq(low, spare);
    mov(spare, high_bytes);
    vpinsrq(low, low, spare, 1);
    vinserti128(Xbyak::Ymm(order.getIdx()), Xbyak::Ymm(order.getIdx()), low, 1);
  }
  mov(correction_stride, Argument(offsetof(QuantizeArgs, corrections_stride)));
  Label next_row, largest_run, finite, scaled, divided;
  L(next_row);
  mov(from, Argument(offsetof(QuantizeArgs, x)));
  vxorps(largest, largest, largest);
  if (spec.k >= lanes()) {
    mov(count, spec.k / lanes());
    L(largest_run);
    const size_t run_at = getSize();
    Load(x, runs[0], from);
    take_largest(runs[0]);
    add(from, lanes() * x_bytes);
    dec(count);
    jnz(largest_run);
    EndLoop("largest", run_at, 0);
  }
  if (spec.k % lanes() != 0) {
    load(runs[0], from, spec.k % lanes());
    take_largest(runs[0]);
  }
  ReduceTo32(largest, other, spare, [&](const Vector& a, const Vector& b) { vpmaxud(a, a, b); });

  // The scale, and what to divide by: infinity where the scale is zero.
  const Xbyak::Xmm scale(divisor.getIdx()), most(other.getIdx());
  cmp(spare.cvt32(), kInfinity);
  jb(finite);
  mov(spare.cvt32(), kQuietNan);
  jmp(scaled);
  L(finite);
  vmovd(scale, spare.cvt32());
  mov(spare.cvt32(), k127);
  vmovd(most, spare.cvt32());
  vdivss(scale, scale, most);
  vmovd(spare.cvt32(), scale);
  L(scaled);
  mov(from, Argument(offsetof(QuantizeArgs, scales)));
  mov(dword[from], spare.cvt32());
  test(spare.cvt32(), spare.cvt32());
  jnz(divided);
  mov(spare.cvt32(), kInfinity);
  L(divided);
  vmovd(scale, spare.cvt32());
  vpbroadcastd(divisor, scale);

  mov(from, Argument(offsetof(QuantizeArgs, x)));
  mov(to, Argument(offsetof(QuantizeArgs, codes)));
  mov(correction, Argument(offsetof(QuantizeArgs, corrections)));
  if (whole_groups > 0) {
    Label next_group;
    mov(groups, whole_groups);
    L(next_group);
    quantize_group(group);
    dec(groups);
    jnz(next_group, T_NEAR);
  }
  if (group == 0 ? spec.scheme->GroupCount(spec.k) > 0 : spec.k % group != 0) {
    quantize_group(group == 0 ? 0 : spec.k % group);
  }

  for (const auto& [pointer, stride] : {std::pair{offsetof(QuantizeArgs, x), offsetof(QuantizeArgs, x_stride)},
                                        {offsetof(QuantizeArgs, codes), offsetof(QuantizeArgs, codes_stride)}}) {
    mov(spare, Argument(stride));
    add(Argument(pointer), spare);
  }
  add(qword[rdi + offsetof(QuantizeArgs, scales)], sizeof(float));
  add(qword[rdi + offsetof(QuantizeArgs, corrections)], sizeof(int32_t));
  dec(qword[rdi + offsetof(QuantizeArgs, rows)]);
  jnz(next_row, T_NEAR);
  Return();
  return entry;
}

}  // namespace clikart::codegen
