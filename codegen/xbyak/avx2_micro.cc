// The register kernels: rows by panels of accumulators, one fma chain in each lane.

#include <cstddef>

#include "avx2_code.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {
namespace {

constexpr int kUnroll = kMicroUnroll;
constexpr int kHalves = 2;  // vectors in a panel's k step
constexpr int kRowsPerPointer = 3;
constexpr int kVectorBytes = 32;
constexpr int kLine = 64;

}  // namespace

int32_t Avx2Code::Micro(int rows, int panels, const Packing& weights) {
  const int32_t entry = Begin();
  const int depth_bytes = weights.DepthBytes();
  const int interleave = weights.interleave;

  // Rows 0..2 are reached from one pointer and 3..5 from another, by multiples of the stride.
  const Reg64 depth = TakePointer();
  const Reg64 stride = TakePointer();
  const Reg64 c = TakePointer();
  const Reg64 b = TakePointer();
  const Reg64 ahead = TakePointer();
  const Reg64 a0 = TakePointer();
  const Reg64 a3 = rows > kRowsPerPointer ? TakePointer() : a0;
  const Reg64 b_stride = panels > 1 ? TakePointer() : b;
  const Reg64 b_stride3 = panels > 3 ? TakePointer() : b;
  const auto a_at = [&](int row, int step) {
    const RegExp base = row < kRowsPerPointer ? RegExp(a0) : RegExp(a3);
    const int multiple = row % kRowsPerPointer;
    const RegExp at = multiple == 0 ? base : base + stride * multiple;
    return at + step * static_cast<int>(sizeof(float));
  };
  const auto panel_at = [&](const Reg64& first, int panel, int step) {
    const RegExp at = panel == 0   ? RegExp(first)
                      : panel == 3 ? RegExp(first) + b_stride3
                                   : RegExp(first) + b_stride * panel;
    return at + step / interleave * interleave * depth_bytes;
  };
  const auto b_at = [&](int panel, int step) { return panel_at(b, panel, step); };

  const int first_accumulator = vectors_taken_;
  for (int i = 0; i < rows * panels * kHalves; ++i) TakeVector();
  const auto accumulator = [&](int row, int panel, int half) {
    return Ymm(first_accumulator + (row * panels + panel) * kHalves + half);
  };
  const Ymm low = TakeVector();
  const Ymm high = TakeVector();
  const Ymm aux = interleave > 1 ? TakeVector() : high;
  // With several panels a step's inputs are used again, so they stay where registers are left.
  const bool keep_inputs = 16 - vectors_taken_ >= rows;
  const int first_input = vectors_taken_;
  for (int i = 0; i < (keep_inputs ? rows : 1); ++i) TakeVector();
  const auto input = [&](int row) { return Ymm(first_input + (keep_inputs ? row : 0)); };

  const auto prefetch = [&](int step) {
    if (step * depth_bytes % kLine != 0) return;
    for (int panel = 0; panel < panels; ++panel) {
      prefetcht0(ptr[panel_at(ahead, panel, step)]);
    }
  };
  const auto accumulate = [&](int step) {
    for (int panel = 0; panel < panels; ++panel) {
      const bool from_memory = weights.dtype == ir::DType::kFloat32 && rows == 1;
      if (!from_memory) DecodeStep(weights, b_at(panel, step), step % interleave, low, high, aux);
      for (int row = 0; row < rows; ++row) {
        if (panel == 0 || !keep_inputs) vbroadcastss(input(row), ptr[a_at(row, step)]);
        if (from_memory) {
          vfmadd231ps(accumulator(row, panel, 0), input(row), ptr[b_at(panel, step)]);
          vfmadd231ps(accumulator(row, panel, 1), input(row), ptr[b_at(panel, step) + kVectorBytes]);
        } else {
          vfmadd231ps(accumulator(row, panel, 0), input(row), low);
          vfmadd231ps(accumulator(row, panel, 1), input(row), high);
        }
      }
    }
  };
  const auto advance = [&](int steps) {
    add(b, steps * depth_bytes);
    add(a0, steps * static_cast<int>(sizeof(float)));
    if (rows > kRowsPerPointer) add(a3, steps * static_cast<int>(sizeof(float)));
  };
  // Applies `move` to each accumulator and its place in c, which ends where it began.
  const auto each_accumulator = [&](const auto& move) {
    mov(c, Argument(offsetof(MicroArgs, c)));
    for (int panel = 0; panel < panels; ++panel) {
      if (panel > 0) add(c, Argument(offsetof(MicroArgs, c_stride)));
      for (int row = 0; row < rows; ++row) {
        for (int half = 0; half < kHalves; ++half) {
          move(accumulator(row, panel, half), ptr[c + (row * static_cast<int>(kAccumulatorRow) + half * kVectorBytes)]);
        }
      }
    }
  };

  mov(a0, Argument(offsetof(MicroArgs, a)));
  mov(b, Argument(offsetof(MicroArgs, b)));
  mov(ahead, Argument(offsetof(MicroArgs, prefetch)));
  if (rows > 1) mov(stride, Argument(offsetof(MicroArgs, a_stride)));
  if (rows > kRowsPerPointer) {
    lea(a3, ptr[stride + stride * 2]);
    add(a3, a0);
  }
  if (panels > 1) mov(b_stride, Argument(offsetof(MicroArgs, b_stride)));
  if (panels > 3) lea(b_stride3, ptr[b_stride + b_stride * 2]);

  PrepareDecode(weights, aux);

  Label fresh, ready, unrolled, rest, whole, single, done;
  cmp(qword[rdi + offsetof(MicroArgs, resume)], 0);
  je(fresh, T_NEAR);
  each_accumulator([&](const Ymm& vector, const Address& place) { vmovups(vector, place); });
  jmp(ready, T_NEAR);
  L(fresh);
  each_accumulator([&](const Ymm& vector, const Address&) { vxorps(vector, vector, vector); });
  L(ready);

  mov(depth, Argument(offsetof(MicroArgs, depth)));
  sub(depth, kUnroll);
  jl(rest, T_NEAR);
  align(32);
  L(unrolled);
  for (int step = 0; step < kUnroll; ++step) {
    prefetch(step);
    accumulate(step);
  }
  advance(kUnroll);
  add(ahead, Argument(offsetof(MicroArgs, prefetch_step)));
  sub(depth, kUnroll);
  jge(unrolled, T_NEAR);
  L(rest);
  // Whole packed steps, and what is left of the last one.
  sub(depth, interleave - kUnroll);
  jl(single, T_NEAR);
  L(whole);
  for (int step = 0; step < interleave; ++step) accumulate(step);
  advance(interleave);
  sub(depth, interleave);
  jge(whole, T_NEAR);
  L(single);
  if (interleave > 1) {
    add(depth, interleave);
    jz(done, T_NEAR);
    accumulate(0);
  }
  L(done);
  each_accumulator([&](const Ymm& vector, const Address& place) { vmovups(place, vector); });
  Return();
  return entry;
}

}  // namespace clikart::codegen
