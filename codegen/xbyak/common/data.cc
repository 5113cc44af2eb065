// Moving and converting elements: decoding of weights, staging of float rows, widening.

#include <cstddef>

#include "kernel_code.h"

namespace clikart::codegen {
namespace {

using ir::DType;

constexpr int kFloatBytes = sizeof(float);

int Bytes(DType dtype, int elements) { return elements * static_cast<int>(ir::SizeOf(dtype)); }

}  // namespace

void KernelCode::Decode(const Packing& weights, const RegExp& from, int k, int half, const Vector& to,
                        const Vector& aux) {
  const RegExp at = from + half * Bytes(weights.dtype, lanes() * weights.interleave * weights.step);
  if (weights.interleave > 1) {
    DecodePairs(weights.dtype, at, k, to, aux);
  } else if (weights.whole()) {
    vmovups(to, ptr[at]);
  } else {
    Load(weights.dtype, to, at);
  }
}

int32_t KernelCode::Stage(DType dtype, ir::Access access, Multiply multiply) {
  const int32_t entry = Begin();
  const Reg64 count = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 out = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 row = TakePointer();  // dense: its address; indirect: its entry of the table
  const Reg64 row_stride = TakePointer();
  const Reg64 spare = TakePointer();
  const Vector value = TakeVector();
  const int vector_bytes = lanes() * kFloatBytes;
  const bool dense = access == ir::Access::kDense;
  // Pairs move as what takes four bytes, an odd last element by itself.
  const bool pairs = multiply == Multiply::kDotBf16;
  const DType x = pairs ? DType::kFloat32 : dtype;
  const auto split_pairs = [&](const auto& move_last) {
    if (!pairs) return;
    Label even;
    test(count.cvt32(), 1);
    jz(even);
    move_last(word[to + count * 2 - 2]);
    L(even);
    shr(count, 1);
  };

  mov(out, Argument(offsetof(StageArgs, out)));
  mov(rows, Argument(offsetof(StageArgs, rows)));
  mov(row, Argument(dense ? offsetof(StageArgs, x) : offsetof(StageArgs, offsets)));
  mov(row_stride, Argument(dense ? offsetof(StageArgs, x_stride) : offsetof(StageArgs, offsets_stride)));
  Label next_row, body, tail, row_done, zeros;
  L(next_row);
  mov(to, out);
  mov(count, Argument(offsetof(StageArgs, count)));
  if (dense) {
    mov(from, row);
  } else {
    mov(from, ptr[row]);
    mov(spare, kZeroTap);
    cmp(from, spare);
    je(zeros, T_NEAR);
    add(from, Argument(offsetof(StageArgs, x)));
  }
  split_pairs([&](const Address& last) {
    movzx(spare.cvt32(), word[from + count * 2 - 2]);
    mov(last, spare.cvt16());
  });
  sub(count, lanes());
  jl(tail, T_NEAR);
  L(body);
  const size_t body_at = getSize();
  Load(x, value, from);
  vmovups(ptr[to], value);
  add(from, Bytes(x, lanes()));
  add(to, vector_bytes);
  sub(count, lanes());
  jge(body);
  EndLoop("stage", body_at, 0);
  L(tail);
  // `count` is a vector less than what is left: its low bits are the same.
  CopyTail(x, from, to, count, spare, value);
  L(row_done);
  add(row, row_stride);
  add(out, Argument(offsetof(StageArgs, out_stride)));
  dec(rows);
  jnz(next_row, T_NEAR);
  Return();

  if (!dense) {
    Label zero_body, zero_tail, zero_single;
    L(zeros);
    vxorps(value, value, value);
    split_pairs([&](const Address& last) { mov(last, 0); });
    sub(count, lanes());
    jl(zero_tail);
    L(zero_body);
    vmovups(ptr[to], value);
    add(to, vector_bytes);
    sub(count, lanes());
    jge(zero_body);
    L(zero_tail);
    add(count, lanes());
    jz(row_done, T_NEAR);
    L(zero_single);
    vmovd(ptr[to], Xbyak::Xmm(value.getIdx()));
    add(to, kFloatBytes);
    dec(count);
    jnz(zero_single);
    jmp(row_done, T_NEAR);
  }
  return entry;
}

int32_t KernelCode::Widen(const Packing& weights) {
  const int32_t entry = Begin();
  const Reg64 steps = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Vector value = TakeVector();
  const Vector aux = TakeVector();
  const int vector_bytes = lanes() * kFloatBytes;
  const int interleave = weights.interleave;
  const auto widen = [&](int count) {
    for (int i = 0; i < count * halves(); ++i) {
      Decode(weights, from, i / halves(), i % halves(), value, aux);
      vmovups(ptr[to + i * vector_bytes], value);
    }
  };
  Label step, rest, done;
  if (interleave > 1) PrepareDecode(weights.dtype, aux);
  mov(from, Argument(offsetof(WidenArgs, panel)));
  mov(to, Argument(offsetof(WidenArgs, out)));
  mov(steps, Argument(offsetof(WidenArgs, steps)));
  sub(steps, interleave);
  jl(rest, T_NEAR);
  L(step);
  const size_t step_at = getSize();
  widen(interleave);
  add(from, interleave * weights.DepthBytes());
  add(to, interleave * halves() * vector_bytes);
  sub(steps, interleave);
  jge(step);
  EndLoop("widen", step_at, 0);
  L(rest);
  if (interleave > 1) {
    add(steps, interleave);
    jz(done, T_NEAR);
    widen(1);
  }
  L(done);
  Return();
  return entry;
}

}  // namespace clikart::codegen
