// compute="int8": the register kernels. Groups follow one another inside; sums of a group are int32 in registers, and
// the outputs, to which each group adds its sums times two scales, are f32 in first-level cache.

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernel_code.h"
#include "row_int8_driver.h"

namespace clikart::codegen {
namespace {

constexpr int kLine = 64;
constexpr int kUnitBytes = static_cast<int>(ir::kPanelLanes) * kPartBytes;
constexpr uint32_t kOneWords = 0x00010001;

int HeaderAt(int panel, size_t part) {
  return static_cast<int>(offsetof(GroupsArgs, headers) + static_cast<size_t>(panel) * sizeof(GroupHeader) + part);
}
constexpr size_t kScales = offsetof(GroupHeader, scales);
constexpr size_t kMinimums = offsetof(GroupHeader, minimums);
constexpr size_t kZeroPoints = offsetof(GroupHeader, zero_points);

}  // namespace

// One such kernel's shape and registers.
struct KernelCode::GroupsKernel {
  ir::CodeLayout layout;
  Correction correction = Correction::kMidpoint;
  CodeMultiply multiply = CodeMultiply::kDot;
  int parts = 1;
  int rows = 1, panels = 1;
  int64_t longest_group = 0;
  StridedRuns a = StridedRuns(1), b = StridedRuns(1), ahead = StridedRuns(1);
  Reg64 count;             // units left of a group; an address outside of that loop
  int first_sum = 0;       // int32, [row][panel][half]
  int decoded_panels = 1;  // whose weights are decoded at once, so that an input serves them all
  int first_work = 0;      // at least three: decoded weights, then an input
  int input = 0;
  int spare = 0;             // a product before it is added, unless dot products do both
  int mask = -1, ones = -1;  // constants, where registers are left; else they are memory operands
};

int32_t KernelCode::Groups(const ir::KernelSpec& spec, const Schedule& schedule, CodeMultiply multiply, int rows,
                           int panels) {
  const int32_t entry = Begin();
  GroupsKernel kernel;
  kernel.layout = ir::CodeLayoutOf(spec);
  kernel.correction = CorrectionOf(*spec.scheme);
  kernel.multiply = multiply;
  kernel.parts = UnitParts(spec, schedule);
  kernel.rows = rows;
  kernel.panels = panels;
  kernel.longest_group = LongestGroup(spec);
  kernel.a = TakeRuns(rows, nullptr);
  kernel.b = TakeRuns(panels, nullptr);
  kernel.ahead = TakeRuns(panels, &kernel.b);
  kernel.count = TakePointer();
  TakeGroupsVectors(kernel);

  // Outputs start as +0.
  const Vector zero = Register(kernel.first_sum);
  vxorps(zero, zero, zero);
  EachSum(kernel, [&](int, int, int, const Address& place) { vmovups(place, zero); });
  LoadRuns(kernel.a, offsetof(GroupsArgs, a), offsetof(GroupsArgs, a_stride));
  LoadRuns(kernel.b, offsetof(GroupsArgs, b), offsetof(GroupsArgs, b_stride));
  mov(kernel.ahead.bases[0], Argument(offsetof(GroupsArgs, prefetch)));
  for (const StridedRuns* const runs : {&kernel.a, &kernel.b, &kernel.ahead}) SpreadBases(*runs);
  if (kernel.mask >= 0) LoadConstant(Register(kernel.mask), PartMask(*spec.scheme));
  if (kernel.ones >= 0) LoadConstant(Register(kernel.ones), kOneWords);

  const int64_t last = kernel.layout.Groups() - 1;
  const int64_t units = kernel.layout.UnitsOf(kernel.longest_group);
  const int64_t last_units = kernel.layout.UnitsOf(kernel.layout.GroupSteps(last));
  Label next_group, whole, next_unit, multiplied, done;
  cmp(qword[rdi + offsetof(GroupsArgs, groups)], 0);
  je(done, T_NEAR);
  L(next_group);
  StartGroup(kernel);
  mov(kernel.count, units);
  if (last_units != units) {
    cmp(qword[rdi + offsetof(GroupsArgs, groups)], 1);
    jne(whole);
    mov(kernel.count, last_units);
    L(whole);
  }
  if (units > 0) {
    align(16);
    L(next_unit);
    const size_t unit_at = getSize();
    MultiplyUnit(kernel);
    dec(kernel.count);
    jnz(next_unit, T_NEAR);
    EndLoop(absl::StrCat("micro ", rows, "x", panels), unit_at, int64_t{rows} * panels * halves() * kernel.parts);
  }
  FinishGroup(kernel);
  mov(kernel.count, Argument(offsetof(GroupsArgs, corrections_stride)));
  add(Argument(offsetof(GroupsArgs, corrections)), kernel.count);
  dec(qword[rdi + offsetof(GroupsArgs, groups)]);
  jnz(next_group, T_NEAR);
  L(done);
  Return();
  return entry;
}

void KernelCode::TakeGroupsVectors(GroupsKernel& kernel) {
  kernel.first_sum = TakeVectors(kernel.rows * kernel.panels * halves());
  const bool products = kernel.multiply != CodeMultiply::kDot;
  // vpmaddubsw and vpmaddwd take no operand that is broadcast from memory.
  const bool keeps_ones = kernel.multiply == CodeMultiply::kBytes && broadcasts_operands();
  const int free = vectors() - vectors_taken() - (products ? 1 : 0) - (keeps_ones ? 1 : 0);
  kernel.decoded_panels = kernel.panels;
  while (kernel.decoded_panels > 1 && kernel.decoded_panels * halves() + 1 > free) kernel.decoded_panels /= 2;
  const int work = std::max(3, kernel.decoded_panels * halves() + 1);
  kernel.first_work = TakeVectors(work);
  kernel.input = kernel.first_work + work - 1;
  if (products) kernel.spare = TakeVectors(1);
  // Constants are the last registers: programs of scales keep to the first ones.
  int last = vectors();
  if (keeps_ones) kernel.ones = (TakeVectors(1), --last);
  const bool masks = kernel.layout.scheme.bits < 8 || kernel.multiply == CodeMultiply::kWords;
  if (masks && vectors_taken() < vectors()) kernel.mask = (TakeVectors(1), --last);
}

Xbyak::Xmm KernelCode::SumOf(const GroupsKernel& kernel, int row, int panel, int half) const {
  return Register(kernel.first_sum + (row * kernel.panels + panel) * halves() + half);
}

void KernelCode::EachSum(const GroupsKernel& kernel,
                         const std::function<void(int row, int panel, int half, const Address& output)>& take) {
  const Reg64 c = kernel.count;
  mov(c, Argument(offsetof(GroupsArgs, c)));
  for (int panel = 0; panel < kernel.panels; ++panel) {
    if (panel > 0) add(c, Argument(offsetof(GroupsArgs, c_stride)));
    for (int row = 0; row < kernel.rows; ++row) {
      for (int half = 0; half < halves(); ++half) {
        take(row, panel, half, ptr[c + (row * static_cast<int>(kAccumulatorRow) + half * lanes() * 4)]);
      }
    }
  }
}

void KernelCode::KeepHeader(const ir::CodeLayout& layout, const RegExp& header, const RegExp& to, int first) {
  const ir::ScaleType scales = layout.scheme.scale_type;
  const Correction correction = CorrectionOf(layout.scheme);
  const Vector value = Register(first);
  for (int half = 0; half < halves(); ++half) {
    const int lane = half * lanes();
    const auto keep = [&](size_t part) { vmovups(ptr[to + static_cast<int>(part) + lane * 4], value); };
    LoadScales(scales, header + static_cast<int>(layout.ScaleAt(lane)), first, kHeaderRegisters);
    keep(kScales);
    if (correction == Correction::kMinimums) {
      LoadScales(scales, header + static_cast<int>(layout.MinimumAt(lane)), first, kHeaderRegisters);
      keep(kMinimums);
    } else if (correction == Correction::kZeroPoints) {
      LoadZeroPoints(value, header + static_cast<int>(layout.ZeroPointAt(lane)));
      keep(kZeroPoints);
    }
  }
}

void KernelCode::StartGroup(const GroupsKernel& kernel) {
  const auto header_bytes = static_cast<int>(kernel.layout.CodesAt());
  for (int panel = 0; panel < kernel.panels; ++panel) {
    for (int at = 0; at < header_bytes; at += kLine) prefetcht0(ptr[kernel.ahead.At(panel) + at]);
    // No sum is under way, so that every register is free but the constants.
    KeepHeader(kernel.layout, kernel.b.At(panel), rdi + HeaderAt(panel, 0), 0);
  }
  for (const StridedRuns* const runs : {&kernel.b, &kernel.ahead}) {
    for (const Reg64& base : runs->bases) add(base, header_bytes);
  }
  const bool starts_corrected = kernel.correction == Correction::kMidpoint;
  if (starts_corrected) mov(kernel.count, Argument(offsetof(GroupsArgs, corrections)));
  for (int row = 0; row < kernel.rows; ++row) {
    for (int i = 0; i < kernel.panels * halves(); ++i) {
      const Vector sum = SumOf(kernel, row, i / halves(), i % halves());
      if (!starts_corrected) {
        vxorps(sum, sum, sum);
      } else if (i == 0) {
        vpbroadcastd(sum, ptr[kernel.count + row * 4]);
      } else {
        vmovaps(sum, SumOf(kernel, row, 0, 0));
      }
    }
  }
}

void KernelCode::DecodePart(const GroupsKernel& kernel, const RegExp& from, int part, const Vector& to) {
  const int bits = kernel.layout.scheme.bits;
  const auto shift = static_cast<uint8_t>(part * bits);
  const bool bytes = bits == 8;
  if (bytes && kernel.multiply == CodeMultiply::kDot) return vmovups(to, ptr[from]);
  vmovups(to, ptr[from]);
  if (bytes && part > 0) return vpsrlw(to, to, shift);
  if (part > 0) vpsrld(to, to, shift);
  if (kernel.mask >= 0) return vandps(to, to, Register(kernel.mask));
  vandps(to, to, Constant(PartMask(kernel.layout.scheme)));
}

void KernelCode::MultiplyCodes(const GroupsKernel& kernel, const Vector& sum, const Vector& weight,
                               const Xbyak::Operand& input) {
  const Vector product = Register(kernel.spare);
  switch (kernel.multiply) {
    case CodeMultiply::kDot:
      return vpdpbusd(sum, weight, input, dot_encoding());
    case CodeMultiply::kBytes:
      vpmaddubsw(product, weight, input);
      if (kernel.ones >= 0) {
        vpmaddwd(product, product, Register(kernel.ones));
      } else {
        vpmaddwd(product, product, Constant(kOneWords));
      }
      break;
    case CodeMultiply::kWords:
      vpmaddwd(product, weight, input);
      break;
  }
  vpaddd(sum, sum, product);
}

void KernelCode::MultiplyUnit(const GroupsKernel& kernel) {
  const int count = kernel.decoded_panels * halves();
  const auto weight = [&](int i) { return Register(kernel.first_work + i); };
  const Vector input = Register(kernel.input);
  const bool broadcasts = broadcasts_operands() && kernel.multiply == CodeMultiply::kDot && kernel.panels == 1;
  for (int panel = 0; panel < kernel.panels; ++panel) prefetcht0(ptr[kernel.ahead.At(panel)]);
  for (int part = 0; part < kernel.parts; ++part) {
    for (int first = 0; first < kernel.panels; first += kernel.decoded_panels) {
      for (int i = 0; i < count; ++i) {
        DecodePart(kernel, kernel.b.At(first + i / halves()) + i % halves() * lanes() * 4, part, weight(i));
      }
      for (int row = 0; row < kernel.rows; ++row) {
        const RegExp from = kernel.a.At(row) + part * kPartBytes;
        if (broadcasts) {
          MultiplyCodes(kernel, SumOf(kernel, row, 0, 0), weight(0), BroadcastOperand(from));
          continue;
        }
        vpbroadcastd(input, ptr[from]);
        for (int i = 0; i < count; ++i) {
          MultiplyCodes(kernel, SumOf(kernel, row, first + i / halves(), i % halves()), weight(i), input);
        }
      }
    }
  }
  for (const StridedRuns* const runs : {&kernel.b, &kernel.ahead}) {
    for (const Reg64& base : runs->bases) add(base, kUnitBytes);
  }
  for (const Reg64& base : kernel.a.bases) add(base, kernel.parts * kPartBytes);
}

void KernelCode::FinishGroup(const GroupsKernel& kernel) {
  const Vector row_value = Register(kernel.first_work), row_sum = Register(kernel.first_work + 1);
  const Vector product = Register(kernel.first_work + 2);
  const auto row_scale = [&](int row) { return rdi + static_cast<int>(offsetof(GroupsArgs, row_scales)) + row * 4; };
  const auto header = [&](int panel, int half, size_t part) {
    return ptr[rdi + HeaderAt(panel, part) + half * lanes() * 4];
  };
  const Reg64 corrections = kernel.count;
  // Applies `take` to each sum, with the row's correction in every lane of row_sum.
  const auto each_corrected = [&](const auto& take) {
    mov(corrections, Argument(offsetof(GroupsArgs, corrections)));
    for (int row = 0; row < kernel.rows; ++row) {
      vpbroadcastd(row_sum, ptr[corrections + row * 4]);
      for (int i = 0; i < kernel.panels * halves(); ++i) take(row, i / halves(), i % halves());
    }
  };
  if (kernel.correction == Correction::kZeroPoints) {
    each_corrected([&](int row, int panel, int half) {
      const Vector sum = SumOf(kernel, row, panel, half);
      if (kernel.longest_group <= kWordGroup) {
        vpmaddwd(product, row_sum, header(panel, half, kZeroPoints));
      } else {
        vpmulld(product, row_sum, header(panel, half, kZeroPoints));
      }
      vpaddd(sum, sum, product);
    });
  }
  const bool minimums = kernel.correction == Correction::kMinimums;
  EachSum(kernel, [&](int row, int panel, int half, const Address& output) {
    const Vector sum = SumOf(kernel, row, panel, half);
    vcvtdq2ps(sum, sum);
    // The product of the two scales is rounded once.
    if (broadcasts_operands()) {
      if (row == 0) vmovups(row_value, header(panel, half, kScales));
      vmulps(product, row_value, BroadcastOperand(row_scale(row)));
    } else {
      if (half == 0) vbroadcastss(row_value, ptr[row_scale(row)]);
      vmulps(product, row_value, header(panel, half, kScales));
    }
    vfmadd213ps(sum, product, output);
    if (!minimums) vmovups(output, sum);
  });
  if (!minimums) return;
  each_corrected([&](int row, int panel, int half) {
    const Vector sum = SumOf(kernel, row, panel, half);
    if (panel == 0 && half == 0) vbroadcastss(row_value, ptr[row_scale(row)]);
    vmulps(product, row_value, header(panel, half, kMinimums));
    vfmadd231ps(sum, product, row_sum);
  });
  EachSum(kernel, [&](int row, int panel, int half, const Address& output) {
    vmovups(output, SumOf(kernel, row, panel, half));
  });
}

}  // namespace clikart::codegen
