// Codes in a register of eight lanes. Tables of more than eight levels take two lookups; but integers, which most are,
// need none (placed_codes.h).

#include <bit>

#include "avx2_code.h"
#include "code_driver.h"
#include "placed_codes.h"

namespace clikart::codegen {
namespace {

constexpr int kLaneBits = 32;

// Registers of a decoder: counts of shifts, and for integers a mask, an exponent and what is subtracted; for
// tables what their two halves give.
constexpr int kShifts = 0, kMask = 1, kExponent = 2, kOffset = 3;
constexpr int kFromLow = 1, kFromHigh = 2;

std::optional<PlacedCodes> Placed(const CodeDecoder& decoder) { return PlacedCodes::Of(decoder.format.decoding); }

}  // namespace

int Avx2Code::DecoderRegisters(const CodeDecoder& decoder) const {
  if (!decoder.format.decoding.tabled()) return 0;
  if (!Placed(decoder)) return kFromHigh + 1;
  return decoder.placed ? kOffset + 1 : kExponent + 1;
}

void Avx2Code::BeginDecoding(CodeDecoder& decoder) {
  decoder.position = -1;
  if (!decoder.placed) BeginCode(decoder, kShiftedCode);
}

void Avx2Code::BeginCode(CodeDecoder& decoder, int code) {
  const std::optional<PlacedCodes> placed = Placed(decoder);
  if (!placed) return;
  const int position = placed->PositionOf(code);
  if (decoder.position == position) return;
  decoder.position = position;
  LoadConstant(Register(decoder.first + kMask), placed->Mask(position));
  LoadConstant(Register(decoder.first + kExponent), std::bit_cast<uint32_t>(placed->Base(position)));
  if (!decoder.placed || decoder.format.scheme.HasZeroPoint()) return;
  LoadConstant(Register(decoder.first + kOffset), std::bit_cast<uint32_t>(placed->Offset(position)));
}

Xbyak::Address Avx2Code::OffsetAt(const CodeDecoder& decoder, int position, int panel, int half) {
  const size_t of_panel = decoder.offsets + static_cast<size_t>(panel) * sizeof(CodeOffsets);
  const size_t of_vector = static_cast<size_t>(position * ir::kPanelLanes + half * lanes()) * sizeof(float);
  return Argument(of_panel + of_vector);
}

void Avx2Code::BeginCodes(CodeDecoder& decoder, const RegExp& header, int panel, int half, int spare) {
  const CodeFormat& format = decoder.format;
  if (!format.scheme.HasZeroPoint()) return;
  const Vector zero_points = Register(spare), offset = Register(spare + 1);
  LoadZeroPoints(zero_points, header + static_cast<int>(format.layout.ZeroPointAt(half * lanes())));
  vcvtdq2ps(zero_points, zero_points);
  const std::optional<PlacedCodes> placed = Placed(decoder);
  if (!placed) return vmovups(OffsetAt(decoder, 0, panel, half), zero_points);
  for (int position = 0; position < kCodePositions; ++position) {
    if (placed->PositionOf(position) != position || (position > 0 && !decoder.placed)) break;
    vaddps(offset, zero_points, Constant(std::bit_cast<uint32_t>(placed->Offset(position))));
    vmovups(OffsetAt(decoder, position, panel, half), offset);
  }
}

void Avx2Code::BeginShiftedCodes(CodeDecoder& decoder) {
  const Vector shifts = Register(decoder.first + kShifts);
  vpxor(shifts, shifts, shifts);
  BeginCode(decoder, kShiftedCode);
}

void Avx2Code::NextShiftedCode(CodeDecoder& decoder) {
  const Vector shifts = Register(decoder.first + kShifts);
  vpaddd(shifts, shifts, Constant(static_cast<uint32_t>(decoder.format.bits())));
}

void Avx2Code::DecodeTabled(const CodeDecoder& decoder, const RegExp& from, int code, const Vector& to, int panel,
                            int half) {
  const CodeFormat& format = decoder.format;
  const std::optional<PlacedCodes> placed = Placed(decoder);
  const int shift = code * format.bits();
  const bool in_place = placed && code > 0 && placed->PositionOf(code) == code;
  if (!in_place) {
    vmovups(to, ptr[from]);
    if (code == kShiftedCode) {
      vpsrlvd(to, to, Register(decoder.first + kShifts));
    } else if (code > 0) {
      vpsrld(to, to, static_cast<uint8_t>(shift));
    }
  }
  if (!placed) return LookUp(decoder, to);
  const Vector mask = Register(decoder.first + kMask);
  if (in_place) {
    vpand(to, mask, ptr[from]);
  } else if (shift + format.bits() < kLaneBits) {
    vpand(to, to, mask);
  }
  vpor(to, to, Register(decoder.first + kExponent));
  const int position = placed->PositionOf(code);
  if (format.scheme.HasZeroPoint()) {
    vsubps(to, to, OffsetAt(decoder, position, panel, half));
  } else if (decoder.placed) {
    vsubps(to, to, Register(decoder.first + kOffset));
  } else {
    vsubps(to, to, Constant(std::bit_cast<uint32_t>(placed->Offset(position))));
  }
}

// vpermps sees the low three bits of an index; the fourth chooses between two lookups.
void Avx2Code::LookUp(const CodeDecoder& decoder, const Vector& to) {
  constexpr int kFourthToSign = 28;
  const Xbyak::Ymm low(decoder.first + kFromLow), high(decoder.first + kFromHigh), index(to.getIdx());
  const Label& table = TableLabel(decoder.format.decoding.levels);
  vpermps(low, index, ptr[rip + table]);
  vpermps(high, index, ptr[rip + table + VectorBytes(to)]);
  vpslld(to, to, kFourthToSign);
  vblendvps(to, low, high, to);
}

void Avx2Code::SubtractZeroPoints(const CodeDecoder& decoder, int panel, int half, const Vector& value) {
  if (Placed(decoder)) return;  // done
  vsubps(value, value, OffsetAt(decoder, 0, panel, half));
}

}  // namespace clikart::codegen
