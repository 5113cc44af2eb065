// Moving and converting elements: staging, widening, loads and stores that end where the data ends.

#include <cstddef>

#include "avx2_code.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {
namespace {

using ir::DType;

constexpr int kEight = 8;
constexpr int kVectorBytes = 32;

int Bytes(DType dtype, int elements) { return elements * static_cast<int>(ir::SizeOf(dtype)); }

}  // namespace

void Avx2Code::PrepareDecode(const Packing& weights, const Ymm& aux) {
  if (weights.interleave > 1 && weights.dtype == DType::kBFloat16) vmovups(aux, Constant(0xffff0000));
}

void Avx2Code::DecodePairs(DType dtype, const RegExp& from, int k, const Ymm& to, const Ymm& aux) {
  if (dtype == DType::kBFloat16) {
    if (k == 1) return vpand(to, aux, ptr[from]);
    vmovups(to, ptr[from]);
    vpslld(to, to, 16);
    return;
  }
  const Xbyak::Xmm low(to.getIdx()), rest(aux.getIdx());
  vmovups(to, ptr[from]);
  if (k == 0) vpslld(to, to, 16);
  vpsrld(to, to, 16);
  vextracti128(rest, to, 1);
  vpackusdw(low, low, rest);
  vcvtph2ps(to, low);
}

void Avx2Code::DecodeStep(const Packing& weights, const RegExp& from, int k, const Ymm& low, const Ymm& high,
                          const Ymm& aux) {
  if (weights.interleave > 1) {
    DecodePairs(weights.dtype, from, k, low, aux);
    DecodePairs(weights.dtype, from + kVectorBytes, k, high, aux);
    return;
  }
  LoadEight(weights.dtype, low, from);
  LoadEight(weights.dtype, high, from + Bytes(weights.dtype, kEight));
}

void Avx2Code::LoadEight(DType dtype, const Ymm& to, const RegExp& from) {
  switch (dtype) {
    case DType::kFloat16:
      vcvtph2ps(to, ptr[from]);
      break;
    case DType::kBFloat16:
      vpmovzxwd(to, ptr[from]);
      vpslld(to, to, 16);
      break;
    default:
      vmovups(to, ptr[from]);
  }
}

void Avx2Code::CopyTail(DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Ymm& value) {
  const Xbyak::Xmm x(value.getIdx());
  for (const int lanes : {4, 2, 1}) {
    Label skip;
    test(count.cvt32(), lanes);
    jz(skip);
    // A load of exactly `lanes` elements to the register's low end.
    const int bytes = Bytes(dtype, lanes);
    if (bytes == 16) {
      vmovups(x, ptr[from]);
    } else if (bytes == 8) {
      vmovq(x, ptr[from]);
    } else if (bytes == 4) {
      vmovd(x, ptr[from]);
    } else {
      vpxor(x, x, x);
      vpinsrw(x, x, ptr[from], 0);
    }
    if (dtype == DType::kFloat16) vcvtph2ps(x, x);
    if (dtype == DType::kBFloat16) {
      vpmovzxwd(x, x);
      vpslld(x, x, 16);
    }
    if (lanes == 4) {
      vmovups(ptr[to], x);
    } else if (lanes == 2) {
      vmovq(ptr[to], x);
    } else {
      vmovd(ptr[to], x);
    }
    if (lanes > 1) {
      add(from, bytes);
      add(to, Bytes(DType::kFloat32, lanes));
    }
    L(skip);
  }
}

void Avx2Code::Round(DType dtype, const Ymm& value, const Ymm& spare0, const Ymm& spare1) {
  const Xbyak::Xmm low(value.getIdx());
  if (dtype == DType::kFloat16) {
    vcvtps2ph(low, value, 0);  // to nearest even, whatever MXCSR says
  } else if (dtype == DType::kBFloat16) {
    // Integer arithmetic keeps subnormals: add just under half, and one more where the last kept bit
    // is odd. A NaN could round up to infinity or past it, so it is made quiet and truncated instead.
    vpsrld(spare0, value, 16);
    vpand(spare0, spare0, Constant(1));
    vpaddd(spare0, spare0, Constant(0x7fff));
    vpaddd(spare0, spare0, value);
    vorps(spare1, value, Constant(0x00400000));
    vcmpps(value, value, value, 3);
    vblendvps(value, spare0, spare1, value);
    vpsrld(value, value, 16);
    vextracti128(Xbyak::Xmm(spare0.getIdx()), value, 1);
    vpackusdw(low, low, Xbyak::Xmm(spare0.getIdx()));
  }
}

void Avx2Code::StoreEight(DType dtype, const RegExp& to, const Ymm& value) {
  if (dtype == DType::kFloat32) {
    vmovups(ptr[to], value);
  } else {
    vmovups(ptr[to], Xbyak::Xmm(value.getIdx()));
  }
}

void Avx2Code::StoreTail(DType dtype, const RegExp& to, const Ymm& value, const Reg64& lanes) {
  const Xbyak::Xmm x(value.getIdx());
  // Four, two and one lanes as the bits of `lanes` say. The pieces lie one after the other, so a
  // piece's place depends on the bits before it: each case of them is its own short path.
  const auto store = [&](int count, int at) {
    const RegExp place = to + Bytes(dtype, at);
    switch (Bytes(dtype, count)) {
      case 16:
        vmovups(ptr[place], x);
        break;
      case 8:
        vmovq(ptr[place], x);
        break;
      case 4:
        vmovd(ptr[place], x);
        break;
      default:
        vpextrw(ptr[place], x, 0);
    }
  };
  const auto drop = [&](int count) {
    if (Bytes(dtype, count) == 16) {
      vextractf128(x, value, 1);
    } else {
      vpsrldq(x, x, Bytes(dtype, count));
    }
  };
  Label done;
  for (const int four : {4, 0}) {
    Label next;
    if (four != 0) {
      test(lanes.cvt32(), 4);
      jz(next, T_NEAR);
      store(4, 0);
      drop(4);
    }
    test(lanes.cvt32(), 2);
    Label no_pair;
    jz(no_pair);
    store(2, four);
    drop(2);
    test(lanes.cvt32(), 1);
    jz(done, T_NEAR);
    store(1, four + 2);
    jmp(done, T_NEAR);
    L(no_pair);
    test(lanes.cvt32(), 1);
    jz(done, T_NEAR);
    store(1, four);
    jmp(done, T_NEAR);
    L(next);
  }
  L(done);
}

int32_t Avx2Code::Stage(DType x, ir::Access access) {
  const int32_t entry = Begin();
  const Reg64 count = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Reg64 out = TakePointer();
  const Reg64 rows = TakePointer();
  const Reg64 row = TakePointer();  // dense: its address; indirect: its entry of the table
  const Reg64 row_stride = TakePointer();
  const Reg64 zero_tap = TakePointer();
  const Ymm value = TakeVector();
  const bool dense = access == ir::Access::kDense;

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
    mov(zero_tap, kZeroTap);
    cmp(from, zero_tap);
    je(zeros, T_NEAR);
    add(from, Argument(offsetof(StageArgs, x)));
  }
  sub(count, kEight);
  jl(tail, T_NEAR);
  L(body);
  LoadEight(x, value, from);
  vmovups(ptr[to], value);
  add(from, Bytes(x, kEight));
  add(to, kVectorBytes);
  sub(count, kEight);
  jge(body);
  L(tail);
  // `count` is eight less than what is left: its low three bits are the same.
  CopyTail(x, from, to, count, value);
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
    sub(count, kEight);
    jl(zero_tail);
    L(zero_body);
    vmovups(ptr[to], value);
    add(to, kVectorBytes);
    sub(count, kEight);
    jge(zero_body);
    L(zero_tail);
    add(count, kEight);
    jz(row_done, T_NEAR);
    L(zero_single);
    vmovd(ptr[to], Xbyak::Xmm(value.getIdx()));
    add(to, static_cast<int>(sizeof(float)));
    dec(count);
    jnz(zero_single);
    jmp(row_done, T_NEAR);
  }
  return entry;
}

int32_t Avx2Code::Widen(const Packing& weights) {
  const int32_t entry = Begin();
  const Reg64 steps = TakePointer();
  const Reg64 from = TakePointer();
  const Reg64 to = TakePointer();
  const Ymm low = TakeVector();
  const Ymm high = TakeVector();
  const Ymm aux = TakeVector();
  const auto widen = [&](int count) {
    for (int k = 0; k < count; ++k) {
      DecodeStep(weights, from, k, low, high, aux);
      vmovups(ptr[to + 2 * k * kVectorBytes], low);
      vmovups(ptr[to + (2 * k + 1) * kVectorBytes], high);
    }
  };
  Label step, rest, done;
  PrepareDecode(weights, aux);
  mov(from, Argument(offsetof(WidenArgs, panel)));
  mov(to, Argument(offsetof(WidenArgs, out)));
  mov(steps, Argument(offsetof(WidenArgs, steps)));
  sub(steps, weights.interleave);
  jl(rest, T_NEAR);
  L(step);
  widen(weights.interleave);
  add(from, weights.interleave * weights.DepthBytes());
  add(to, weights.interleave * 2 * kVectorBytes);
  sub(steps, weights.interleave);
  jge(step);
  L(rest);
  if (weights.interleave > 1) {
    add(steps, weights.interleave);
    jz(done, T_NEAR);
    widen(1);
  }
  L(done);
  Return();
  return entry;
}

}  // namespace clikart::codegen
