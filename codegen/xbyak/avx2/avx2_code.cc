#include "avx2_code.h"

namespace clikart::codegen {
namespace {

using ir::DType;

constexpr int kLanes = 8;

int Bytes(DType dtype, int elements) { return elements * static_cast<int>(ir::SizeOf(dtype)); }

}  // namespace

void Avx2Code::PrepareDecode(DType dtype, const Vector& aux) {
  if (dtype == DType::kBFloat16) LoadConstant(aux, 0xffff0000);
}

void Avx2Code::DecodePairs(DType dtype, const RegExp& from, int k, const Vector& to, const Vector& aux) {
  if (dtype == DType::kInt8) {
    vmovups(to, ptr[from]);
    if (k == 0) vpsllw(to, to, 8);
    return vpsraw(to, to, 8);
  }
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
  vextracti128(rest, Xbyak::Ymm(to.getIdx()), 1);
  vpackusdw(low, low, rest);
  vcvtph2ps(to, low);
}

void Avx2Code::Load(DType dtype, const Vector& to, const RegExp& from) {
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

void Avx2Code::CopyTail(DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Reg64&,
                        const Vector& value) {
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

void Avx2Code::Round(DType dtype, const Vector& value, const Vector& spare0, const Vector& spare1) {
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
    vextracti128(Xbyak::Xmm(spare0.getIdx()), Xbyak::Ymm(value.getIdx()), 1);
    vpackusdw(low, low, Xbyak::Xmm(spare0.getIdx()));
  } else if (Bytes(dtype, 1) == 1) {
    vpand(value, value, Constant(0xff));
    vextracti128(Xbyak::Xmm(spare0.getIdx()), Xbyak::Ymm(value.getIdx()), 1);
    vpackusdw(low, low, Xbyak::Xmm(spare0.getIdx()));
    vpackuswb(low, low, low);
  }
}

void Avx2Code::NarrowCodes(int bytes, const Vector& first, const Vector& second) {
  const Xbyak::Ymm words(first.getIdx());
  constexpr uint8_t kMiddleQuartersSwapped = 0xd8;
  vpackssdw(words, words, second);
  vpermq(words, words, kMiddleQuartersSwapped);
  if (bytes > 1) return;
  const Xbyak::Xmm low(first.getIdx()), high(second.getIdx());
  vextracti128(high, words, 1);
  vpacksswb(low, low, high);
}

void Avx2Code::Store(DType dtype, const RegExp& to, const Vector& value) {
  const Xbyak::Xmm low(value.getIdx());
  switch (Bytes(dtype, 1)) {
    case 4:
      return vmovups(ptr[to], value);
    case 2:
      return vmovups(ptr[to], low);
    default:
      return vmovq(ptr[to], low);
  }
}

void Avx2Code::StoreTail(DType dtype, const RegExp& to, const Vector& value, const Reg64& count, const Reg64&) {
  const Xbyak::Xmm x(value.getIdx());
  // Four, two and one lanes as the bits of `lanes` say. The pieces lie one after the other, so a
  // piece's place depends on the bits before it: each case of them is its own short path.
  const auto store = [&](int lanes, int at) {
    const RegExp place = to + Bytes(dtype, at);
    switch (Bytes(dtype, lanes)) {
      case 16:
        vmovups(ptr[place], x);
        break;
      case 8:
        vmovq(ptr[place], x);
        break;
      case 4:
        vmovd(ptr[place], x);
        break;
      case 2:
        vpextrw(ptr[place], x, 0);
        break;
      default:
        vpextrb(ptr[place], x, 0);
    }
  };
  const auto drop = [&](int lanes) {
    if (Bytes(dtype, lanes) == 16) {
      vextractf128(x, Xbyak::Ymm(value.getIdx()), 1);
    } else {
      vpsrldq(x, x, Bytes(dtype, lanes));
    }
  };
  Label done;
  for (const int four : {4, 0}) {
    Label next;
    if (four != 0) {
      test(count.cvt32(), 4);
      jz(next, T_NEAR);
      store(4, 0);
      drop(4);
    }
    test(count.cvt32(), 2);
    Label no_pair;
    jz(no_pair);
    store(2, four);
    drop(2);
    test(count.cvt32(), 1);
    jz(done, T_NEAR);
    store(1, four + 2);
    jmp(done, T_NEAR);
    L(no_pair);
    test(count.cvt32(), 1);
    jz(done, T_NEAR);
    store(1, four);
    jmp(done, T_NEAR);
    L(next);
  }
  L(done);
}

void Avx2Code::PrepareFirst(int lanes, const Vector& mask, const Vector& spare) {
  const Xbyak::Xmm low(mask.getIdx()), rest(spare.getIdx());
  constexpr int kQuarter = 4, kBytes = 16;
  vpcmpeqd(low, low, low);
  if (lanes < kQuarter) {
    vpsrldq(low, low, kBytes - 4 * lanes);
  } else if (lanes > kQuarter) {
    vpsrldq(rest, low, kBytes - 4 * (lanes - kQuarter));
    vinserti128(Xbyak::Ymm(mask.getIdx()), Xbyak::Ymm(mask.getIdx()), rest, 1);
  }
}

void Avx2Code::LoadFirst(DType dtype, const Vector& to, const RegExp& from, int lanes, const Vector& mask) {
  if (lanes == kLanes) return Load(dtype, to, from);
  if (dtype == DType::kFloat32) {
    vmaskmovps(to, mask, ptr[from]);
    return;
  }
  // Pieces of four, two and one 16-bit elements.
  const Xbyak::Xmm x(to.getIdx());
  if (lanes >= 4) {
    vmovq(x, ptr[from]);
    if ((lanes & 2) != 0) vpinsrd(x, x, ptr[from + 8], 2);
  } else if (lanes >= 2) {
    vmovd(x, ptr[from]);
  } else {
    vpxor(x, x, x);
  }
  if ((lanes & 1) != 0) vpinsrw(x, x, ptr[from + 2 * (lanes - 1)], static_cast<uint8_t>(lanes - 1));
  if (dtype == DType::kFloat16) {
    vcvtph2ps(to, x);
  } else {
    vpmovzxwd(to, x);
    vpslld(to, to, 16);
  }
}

}  // namespace clikart::codegen
