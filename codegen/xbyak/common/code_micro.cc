// The register kernels over quantized weights: in each lane a chain of a group's products, and at the group's end one
// fma with its scale onto the accumulator.

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "code_driver.h"
#include "kernel_code.h"

namespace clikart::codegen {
namespace {

constexpr int kInputBytes = sizeof(float);                                   // of a row and step
constexpr int kStepBytes = static_cast<int>(ir::kPanelLanes) * kInputBytes;  // of widened panels
constexpr int kAccumulatorBytes = static_cast<int>(kAccumulatorRow);
constexpr int kLine = 64;
constexpr int kUnroll = 4;

}  // namespace

int32_t KernelCode::CodeMicro(const CodeFormat& format, const MicroKind& kind, bool unrolls) {
  return kind.form == WeightForm::kPacked ? PackedCodeMicro(format, kind, unrolls)
                                          : WidenedCodeMicro(format, kind, unrolls);
}

void KernelCode::TakePointers(CodeTile& tile) {
  tile.a = TakeRuns(tile.kind.rows, nullptr);
  tile.b = TakeRuns(tile.kind.panels, nullptr);
  tile.spare = TakePointer();
}

void KernelCode::LoadPointers(const CodeTile& tile) {
  LoadRuns(tile.a, offsetof(CodeMicroArgs, a), offsetof(CodeMicroArgs, a_stride));
  LoadRuns(tile.b, offsetof(CodeMicroArgs, b), offsetof(CodeMicroArgs, b_stride));
  SpreadBases(tile.a);
  SpreadBases(tile.b);
}

template <typename Move>
void KernelCode::EachSum(const CodeTile& tile, size_t offset, int panel, const Move& move) {
  mov(tile.spare, Argument(offset));
  for (int i = 0; i < panel; ++i) add(tile.spare, Argument(offsetof(CodeMicroArgs, c_stride)));
  for (int row = 0; row < tile.kind.rows; ++row) {
    for (int half = 0; half < halves(); ++half) {
      move(Sum(tile, row, panel, half), half,
           ptr[tile.spare + (row * kAccumulatorBytes + half * kAccumulatorBytes / halves())]);
    }
  }
}

void KernelCode::ClearSums(const CodeTile& tile) {
  for (int i = 0; i < tile.kind.rows * tile.kind.panels * halves(); ++i) {
    const Vector sum = Register(tile.first_sum + i);
    vxorps(sum, sum, sum);
  }
}

void KernelCode::AddGroup(const CodeTile& tile) {
  const bool minimum = tile.format.scheme.minimum;
  const bool packed = tile.kind.form == WeightForm::kPacked;
  const auto factor = [&](int half) { return Register(tile.first_value + half); };
  const auto load_factors = [&](int panel, size_t kind) {
    const size_t at = static_cast<size_t>(panel) * sizeof(GroupLanes) + kind;
    if (!packed) mov(tile.spare, Argument(offsetof(CodeMicroArgs, lanes)));
    const RegExp from = packed ? rdi + (offsetof(CodeMicroArgs, own) + at) : tile.spare + at;
    for (int half = 0; half < halves(); ++half) {
      vmovups(factor(half), ptr[from + half * kAccumulatorBytes / halves()]);
    }
  };
  const bool keeps = tile.first_kept >= 0;
  // Of one panel.
  const auto each_sum = [&](int panel, const auto& take) {
    for (int row = 0; row < tile.kind.rows; ++row) {
      for (int half = 0; half < halves(); ++half) take(row, half, Sum(tile, row, panel, half));
    }
  };
  for (int panel = 0; panel < tile.kind.panels; ++panel) {
    load_factors(panel, offsetof(GroupLanes, scale));
    if (keeps) {
      each_sum(panel, [&](int, int half, const Vector& sum) { vfmadd231ps(Kept(tile, sum), sum, factor(half)); });
    } else {
      EachSum(tile, offsetof(CodeMicroArgs, c), panel, [&](const Vector& sum, int half, const Address& place) {
        vfmadd213ps(sum, factor(half), place);
        if (!minimum) vmovups(place, sum);
      });
    }
    if (!minimum) continue;
    load_factors(panel, offsetof(GroupLanes, minimum));
    const Vector input = Register(tile.first_value + halves());
    mov(tile.spare, Argument(offsetof(CodeMicroArgs, sums)));
    each_sum(panel, [&](int row, int half, const Vector& sum) {
      if (half == 0) vbroadcastss(input, ptr[tile.spare + row * kInputBytes]);
      vfmadd231ps(keeps ? Kept(tile, sum) : sum, input, factor(half));
    });
    if (keeps) continue;
    EachSum(tile, offsetof(CodeMicroArgs, c), panel,
            [&](const Vector& sum, int, const Address& place) { vmovups(place, sum); });
  }
  if (!minimum) return;
  mov(tile.spare, Argument(offsetof(CodeMicroArgs, sums_stride)));
  add(Argument(offsetof(CodeMicroArgs, sums)), tile.spare);
}

int32_t KernelCode::PackedCodeMicro(const CodeFormat& format, const MicroKind& kind, bool widest) {
  const int32_t entry = Begin();
  const auto& [form, rows, panels] = kind;
  CodeTile tile(format, kind);
  TakePointers(tile);
  const int sums = rows * panels * halves();
  tile.first_sum = TakeVectors(sums);
  // A step keeps its inputs for all vectors of codes, or its floats for all rows, whichever are fewer.
  const bool keeps_inputs = rows <= panels * halves();
  const int kept = keeps_inputs ? rows : panels * halves();
  tile.values = std::max({kept + 1, halves() + 1, kFewestRegisters - sums});
  tile.first_value = TakeVectors(tile.values);
  // Between groups all but the decoder's registers are free.
  const int pool = tile.first_sum, pooled = sums + tile.values;
  const int other = tile.first_value + kept;  // the one of the two that is not kept
  const int unit = format.unit();
  // With a row or two, decoding is what takes time: shifts are constants there.
  const bool unrolls = widest && (unit == 1 || rows <= vectors() / 16);
  CodeDecoder decoder{
      .format = format, .panels = panels, .offsets = offsetof(CodeMicroArgs, offsets), .placed = unrolls};
  decoder.first = TakeVectors(DecoderRegisters(decoder));

  const auto step = [&](int code, int unit_at, int input_at) {
    BeginCode(decoder, code);
    const auto load_input = [&](int row, int to) { vbroadcastss(Register(to), ptr[tile.a.At(row) + input_at]); };
    const auto decode = [&](int vector, int to) {
      const int panel = vector / halves();
      DecodeCode(decoder, tile.b.At(panel) + unit_at, code, panel, vector % halves(), to, kFewestRegisters);
    };
    const int vectors = panels * halves();
    for (int i = 0; i < kept; ++i) keeps_inputs ? load_input(i, tile.first_value + i) : decode(i, tile.first_value + i);
    for (int i = 0; i < (keeps_inputs ? vectors : rows); ++i) {
      keeps_inputs ? decode(i, other) : load_input(i, other);
      for (int j = 0; j < kept; ++j) {
        const int row = keeps_inputs ? j : i, vector = keeps_inputs ? i : j;
        const Vector sum = Sum(tile, row, vector / halves(), vector % halves());
        vfmadd231ps(sum, Register(tile.first_value + j), Register(other));
      }
    }
  };
  const auto advance = [&](int codes, int steps) {
    for (const Reg64& base : tile.b.bases) add(base, codes);
    for (const Reg64& base : tile.a.bases) add(base, steps * kInputBytes);
  };
  const auto prefetch = [&] {
    for (int panel = 0; panel < panels; ++panel)
      prefetcht0(ptr[tile.b.At(panel) + static_cast<int>(kStreamAhead) / panels]);
  };
  const int64_t multiplies = int64_t{rows} * panels * halves();
  const std::string name = absl::StrCat("micro ", rows, "x", panels, " packed");
  // `count` steps of one unit.
  const auto shifted_steps = [&](const Reg64& count) {
    Label single;
    BeginShiftedCodes(decoder);
    L(single);
    const size_t single_at = getSize();
    step(kShiftedCode, 0, 0);
    NextShiftedCode(decoder);
    advance(0, 1);
    dec(count);
    jnz(single, T_NEAR);
    EndLoop(unrolls ? name + " remainder" : name, single_at, multiplies);
    advance(format.unit_bytes(), 0);
  };

  const Reg64 left = tile.spare;  // steps of the group, as long as one is under way
  LoadPointers(tile);
  BeginDecoding(decoder);
  Label group, units, rest, done;
  L(group);
  if (format.scheme.HasGlobalScale()) mov(tile.spare, Argument(offsetof(CodeMicroArgs, lane_scales)));
  for (int panel = 0; panel < panels; ++panel) {
    const RegExp to = rdi + (offsetof(CodeMicroArgs, own) + static_cast<size_t>(panel) * sizeof(GroupLanes));
    LoadGroup(format, tile.b.At(panel), to, tile.spare + panel * kStepBytes, pool, pooled);
    for (int half = 0; half < halves(); ++half) BeginCodes(decoder, tile.b.At(panel), panel, half, pool);
  }
  advance(format.codes_at(), 0);
  ClearSums(tile);
  mov(left, Argument(offsetof(CodeMicroArgs, steps)));
  if (unrolls) {
    const int at_once = unit == 1 ? kLine / format.unit_bytes() : unit;
    decoder.position = -1;
    sub(left, at_once);
    jl(rest, T_NEAR);
    align(32);
    L(units);
    const size_t units_at = getSize();
    prefetch();
    for (int i = 0; i < at_once; ++i) step(i % unit, i / unit * format.unit_bytes(), i * kInputBytes);
    advance(at_once / unit * format.unit_bytes(), at_once);
    sub(left, at_once);
    jge(units, T_NEAR);
    EndLoop(name, units_at, at_once * multiplies);
    L(rest);
    add(left, at_once);
  } else {
    test(left, left);
  }
  jz(done, T_NEAR);
  if (unit == 1) {
    Label single;
    L(single);
    const size_t single_at = getSize();
    step(0, 0, 0);
    advance(format.unit_bytes(), 1);
    dec(left);
    jnz(single, T_NEAR);
    EndLoop(unrolls ? name + " remainder" : name, single_at, multiplies);
  } else if (!unrolls) {
    const Address left_steps = qword[rdi + offsetof(CodeMicroArgs, left)];
    mov(left_steps, left);
    L(units);
    prefetch();
    // A unit's steps, or what is left of the last one.
    Label whole;
    mov(left, left_steps);
    sub(left_steps, unit);
    jl(whole);
    mov(left.cvt32(), unit);
    L(whole);
    shifted_steps(left);
    cmp(left_steps, 0);
    jg(units, T_NEAR);
  } else if (!format.whole_units) {
    decoder.position = -1;
    shifted_steps(left);
  }
  L(done);
  AddGroup(tile);
  dec(qword[rdi + offsetof(CodeMicroArgs, groups)]);
  jnz(group, T_NEAR);
  Return();
  return entry;
}

int32_t KernelCode::WidenedCodeMicro(const CodeFormat& format, const MicroKind& kind, bool unrolls) {
  const int32_t entry = Begin();
  const auto& [form, rows, panels] = kind;
  CodeTile tile(format, kind);
  TakePointers(tile);
  const int sums = rows * panels * halves();
  tile.first_sum = TakeVectors(sums);
  tile.values = panels * halves() + 1;
  tile.first_value = TakeVectors(tile.values);
  const bool keeps = vectors_taken() + sums <= vectors();
  if (keeps) tile.first_kept = TakeVectors(sums);
  const auto weight = [&](int panel, int half) { return Register(tile.first_value + panel * halves() + half); };
  const Vector input = Register(tile.first_value + panels * halves());
  const bool broadcasts = broadcasts_operands() && panels * halves() == 1;

  const auto step = [&](int k) {
    const auto from = [&](int panel, int half) {
      return ptr[tile.b.At(panel) + (k * kStepBytes + half * kStepBytes / halves())];
    };
    for (int panel = 0; panel < panels && rows > 1; ++panel) {
      for (int half = 0; half < halves(); ++half) vmovups(weight(panel, half), from(panel, half));
    }
    for (int row = 0; row < rows; ++row) {
      const RegExp at = tile.a.At(row) + k * kInputBytes;
      if (broadcasts && rows > 1) {
        vfmadd231ps(Sum(tile, row, 0, 0), weight(0, 0), BroadcastOperand(at));
        continue;
      }
      vbroadcastss(input, ptr[at]);
      for (int panel = 0; panel < panels; ++panel) {
        for (int half = 0; half < halves(); ++half) {
          const Vector sum = Sum(tile, row, panel, half);
          rows > 1 ? vfmadd231ps(sum, input, weight(panel, half)) : vfmadd231ps(sum, input, from(panel, half));
        }
      }
    }
  };
  const auto advance = [&](int steps) {
    for (const Reg64& base : tile.b.bases) add(base, steps * kStepBytes);
    for (const Reg64& base : tile.a.bases) add(base, steps * kInputBytes);
  };
  const auto each_panel = [&](size_t offset, const auto& move) {
    for (int panel = 0; panel < panels; ++panel) EachSum(tile, offset, panel, move);
  };
  const int64_t multiplies = int64_t{rows} * panels * halves();

  const Reg64 left = tile.spare;  // steps of the group, as long as one is under way
  const std::string name = absl::StrCat("micro ", rows, "x", panels, " widened");

  Label group, begun, steps, rest, single, complete, store, done;
  LoadPointers(tile);
  if (keeps) {
    each_panel(offsetof(CodeMicroArgs, c),
               [&](const Vector& sum, int, const Address& place) { vmovups(Kept(tile, sum), place); });
  }
  cmp(qword[rdi + offsetof(CodeMicroArgs, resume)], 0);
  je(group, T_NEAR);
  each_panel(offsetof(CodeMicroArgs, t), [&](const Vector& sum, int, const Address& place) { vmovups(sum, place); });
  jmp(begun, T_NEAR);
  L(group);
  ClearSums(tile);
  L(begun);
  mov(left, Argument(offsetof(CodeMicroArgs, steps)));
  if (unrolls) {
    sub(left, kUnroll);
    jl(rest, T_NEAR);
    align(32);
    L(steps);
    const size_t steps_at = getSize();
    for (int k = 0; k < kUnroll; ++k) step(k);
    advance(kUnroll);
    sub(left, kUnroll);
    jge(steps, T_NEAR);
    EndLoop(name, steps_at, kUnroll * multiplies);
    L(rest);
    add(left, kUnroll);
  } else {
    test(left, left);
  }
  jz(complete, T_NEAR);
  L(single);
  const size_t single_at = getSize();
  step(0);
  advance(1);
  dec(left);
  jnz(single, T_NEAR);
  EndLoop(unrolls ? name + " remainder" : name, single_at, multiplies);
  L(complete);
  cmp(qword[rdi + offsetof(CodeMicroArgs, partial)], 0);
  jne(store, T_NEAR);
  AddGroup(tile);
  add(qword[rdi + offsetof(CodeMicroArgs, lanes)], panels * static_cast<int>(sizeof(GroupLanes)));
  dec(qword[rdi + offsetof(CodeMicroArgs, groups)]);
  jnz(group, T_NEAR);
  if (keeps) {
    each_panel(offsetof(CodeMicroArgs, c),
               [&](const Vector& sum, int, const Address& place) { vmovups(place, Kept(tile, sum)); });
  }
  jmp(done, T_NEAR);
  L(store);
  each_panel(offsetof(CodeMicroArgs, t), [&](const Vector& sum, int, const Address& place) { vmovups(place, sum); });
  L(done);
  Return();
  return entry;
}

}  // namespace clikart::codegen
