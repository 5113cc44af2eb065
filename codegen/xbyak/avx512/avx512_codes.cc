// Codes in a register of sixteen lanes. Those of a table are looked up by vpermps, which sees the low four bits of an
// index alone, so that a shift is all that comes before it.

#include "avx512_code.h"

namespace clikart::codegen {
namespace {

// Registers of a decoder: the table, counts of shifts, and zero points by panel.
constexpr int kTable = 0, kShifts = 1, kZeroPoints = 2;

}  // namespace

int Avx512Code::DecoderRegisters(const CodeDecoder& decoder) const {
  return kZeroPoints + (decoder.format.scheme.HasZeroPoint() ? decoder.panels : 0);
}

void Avx512Code::BeginDecoding(CodeDecoder& decoder) {
  if (!decoder.format.decoding.tabled()) return;
  vmovups(Register(decoder.first + kTable), ptr[rip + TableLabel(decoder.format.decoding.levels)]);
}

void Avx512Code::BeginCodes(CodeDecoder& decoder, const RegExp& header, int panel, int, int) {
  if (!decoder.format.scheme.HasZeroPoint()) return;
  const Vector zero_points = Register(decoder.first + kZeroPoints + panel);
  LoadZeroPoints(zero_points, header + static_cast<int>(decoder.format.layout.ZeroPointAt(0)));
  vcvtdq2ps(zero_points, zero_points);
}

void Avx512Code::BeginShiftedCodes(CodeDecoder& decoder) {
  const Vector shifts = Register(decoder.first + kShifts);
  vpxord(shifts, shifts, shifts);
}

void Avx512Code::NextShiftedCode(CodeDecoder& decoder) {
  const Vector shifts = Register(decoder.first + kShifts);
  vpaddd(shifts, shifts, Constant(static_cast<uint32_t>(decoder.format.bits())));
}

void Avx512Code::DecodeTabled(const CodeDecoder& decoder, const RegExp& from, int code, const Vector& to, int, int) {
  if (code == 0) {
    vmovups(to, ptr[from]);
  } else if (code != kShiftedCode) {
    vpsrld(to, ptr[from], static_cast<uint8_t>(code * decoder.format.bits()));
  } else {
    vmovups(to, ptr[from]);
    vpsrlvd(to, to, Register(decoder.first + kShifts));
  }
  const Xbyak::Zmm index(to.getIdx());
  vpermps(index, index, Register(decoder.first + kTable));
}

void Avx512Code::SubtractZeroPoints(const CodeDecoder& decoder, int panel, int, const Vector& value) {
  vsubps(value, value, Register(decoder.first + kZeroPoints + panel));
}

}  // namespace clikart::codegen
