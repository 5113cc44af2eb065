#include "avx512_code.h"

namespace clikart::codegen {
namespace {

using ir::DType;

constexpr uint8_t kUnordered = 3;  // predicate of vcmpps: one of the two is NaN

}  // namespace

Xbyak::Xmm Avx512Code::Register(int number, int lanes) const {
  const int index = number % vectors();
  return lanes == this->lanes() ? Vector(Xbyak::Zmm(index)) : Vector(Xbyak::Ymm(index));
}

Xbyak::Xmm Avx512Code::Half(const Vector& vector) {
  return vector.isZMM() ? Vector(Xbyak::Ymm(vector.getIdx())) : Vector(Xbyak::Xmm(vector.getIdx()));
}

void Avx512Code::PrepareDecode(DType dtype, const Vector& aux) {
  if (dtype == DType::kBFloat16) LoadConstant(aux, 0xffff0000);
}

void Avx512Code::DecodePairs(DType dtype, const RegExp& from, int k, const Vector& to, const Vector& aux) {
  if (dtype == DType::kInt8) {
    vmovups(to, ptr[from]);
    if (k == 0) vpsllw(to, to, 8);
    return vpsraw(to, to, 8);
  }
  if (dtype == DType::kBFloat16) {
    if (k == 0) return vpslld(to, ptr[from], 16);
    return vpandd(to, aux, ptr[from]);
  }
  if (k == 0) {
    vmovups(to, ptr[from]);
  } else {
    vpsrld(to, ptr[from], 16);
  }
  vpmovdw(Half(to), to);
  vcvtph2ps(to, Half(to));
}

void Avx512Code::Load(DType dtype, const Vector& to, const RegExp& from) {
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

void Avx512Code::LoadMasked(DType dtype, const Vector& to, const RegExp& from) {
  if (dtype == DType::kFloat32) return vmovups(to | k1 | T_z, ptr[from]);
  vmovdqu16(Half(to) | k1 | T_z, ptr[from]);
  if (dtype == DType::kFloat16) {
    vcvtph2ps(to, Half(to));
  } else {
    vpmovzxwd(to, Half(to));
    vpslld(to, to, 16);
  }
}

void Avx512Code::MaskFirst(const Reg64& count, const Reg64& spare) {
  mov(spare.cvt32(), -1);
  bzhi(spare.cvt32(), spare.cvt32(), count.cvt32());
  kmovd(k1, spare.cvt32());
}

void Avx512Code::CopyTail(DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Reg64& spare,
                          const Vector& value) {
  Label done;
  and_(count.cvt32(), lanes() - 1);
  jz(done);
  MaskFirst(count, spare);
  LoadMasked(dtype, value, from);
  vmovups(ptr[to] | k1, value);
  L(done);
}

void Avx512Code::PrepareFirst(int lanes, const Vector&, const Vector&) {
  mov(eax, (1 << lanes) - 1);
  kmovd(k1, eax);
}

void Avx512Code::LoadFirst(DType dtype, const Vector& to, const RegExp& from, int lanes, const Vector&) {
  lanes == this->lanes() ? Load(dtype, to, from) : LoadMasked(dtype, to, from);
}

void Avx512Code::Round(DType dtype, const Vector& value, const Vector& spare0, const Vector& spare1) {
  if (dtype == DType::kFloat16) {
    vcvtps2ph(Half(value), value, 0);  // to nearest even, whatever MXCSR says
  } else if (dtype == DType::kBFloat16) {
    // vcvtneps2bf16 would flush subnormals. Integer arithmetic keeps them: add just under half, and one more
    // where the last kept bit is odd. A NaN could round up to infinity or past it, so it is made quiet and
    // truncated instead.
    vpsrld(spare0, value, 16);
    vpandd(spare0, spare0, Constant(1));
    vpaddd(spare0, spare0, Constant(0x7fff));
    vpaddd(spare0, spare0, value);
    vcmpps(k1, value, value, kUnordered);
    vpord(spare0 | k1, value, Constant(0x00400000));
    vpsrld(spare1, spare0, 16);
    vpmovdw(Half(value), spare1);
  } else if (ir::SizeOf(dtype) == 1) {
    vpmovdb(Quarter(value), value);
  }
}

void Avx512Code::NarrowCodes(int bytes, const Vector& first, const Vector&) {
  bytes == 1 ? vpmovdb(Quarter(first), first) : vpmovdw(Half(first), first);
}

void Avx512Code::Store(DType dtype, const RegExp& to, const Vector& value) {
  switch (ir::SizeOf(dtype)) {
    case 4:
      return vmovups(ptr[to], value);
    case 2:
      return vmovups(ptr[to], Half(value));
    default:
      return LanesOf(value) == lanes() ? vmovups(ptr[to], Quarter(value)) : vmovq(ptr[to], Quarter(value));
  }
}

void Avx512Code::StoreTail(DType dtype, const RegExp& to, const Vector& value, const Reg64& count, const Reg64& spare) {
  MaskFirst(count, spare);
  switch (ir::SizeOf(dtype)) {
    case 4:
      return vmovups(ptr[to] | k1, value);
    case 2:
      return vmovdqu16(ptr[to] | k1, Half(value));
    default:
      return vmovdqu8(ptr[to] | k1, Quarter(value));
  }
}

void Avx512Code::Compare(const Vector& to, const Vector& a, const Xbyak::Operand& b, uint8_t predicate) {
  vcmpps(k1, a, b, predicate);
  vpmovm2d(to, k1);
}

void Avx512Code::Select(const Vector& to, const Vector& mask, const Xbyak::Operand& a, const Vector& b) {
  // A mask is all ones or zeros in a lane, so its sign says which.
  vpmovd2m(k1, mask);
  vblendmps(to | k1, b, a);
}

}  // namespace clikart::codegen
