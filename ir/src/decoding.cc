#include "clikart/ir/decoding.h"

#include <bit>
#include <cstddef>

#include "fnv.h"
#include "program_builder.h"

namespace clikart::ir {
namespace {

// The sixteen levels of NF4: quantiles of a normal distribution scaled to [-1, 1], as published with
// QLoRA (Dettmers et al., 2023).
constexpr std::array<float, kLevels> kNf4Levels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Sign, two bits of exponent, one of fraction (OCP Microscaling Formats 1.0, E2M1).
constexpr std::array<float, kLevels> kE2m1Levels = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// A byte of `fraction` low bits, an exponent and a sign, with the exponent's bias as IEEE-754 has it. Codes whose
// magnitude is `special` or more are the caller's.
struct Minifloat {
  Lane magnitude;  // without the sign, as a float
  Lane bits;       // the f32 of a code, without the sign
  Lane sign;       // at its place in an f32
};

Minifloat DecodeMinifloat(Lane code, int exponent_bits, int fraction_bits) {
  ProgramBuilder& p = code.builder();
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const Lane low = Emit2(Op::kAnd, code, p.ConstBits(0x7f));
  const Lane magnitude = ToFloat(low);
  const Lane shifted = Shl(low, static_cast<uint32_t>(23 - fraction_bits));
  const Lane normal = IntAdd(shifted, p.ConstBits(static_cast<uint32_t>(127 - bias) << 23));
  const float least = std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - bias - fraction_bits) << 23);
  const Lane bits = Select(Less(magnitude, static_cast<float>(1 << fraction_bits)), magnitude * least, normal);
  return {magnitude, bits, Shl(Emit2(Op::kAnd, code, p.ConstBits(0x80)), 24)};
}

Lane QuietNan(ProgramBuilder& p) { return p.ConstBits(0x7fc00000); }

Program E4m3() {  // no infinities; all ones is NaN
  ProgramBuilder p(1);
  const Minifloat number = DecodeMinifloat(p.Input(0), 4, 3);
  const Lane finite = Select(Less(number.magnitude, 127.0f), number.bits, QuietNan(p));
  return p.Build(Emit2(Op::kOr, finite, number.sign));
}

Program E5m2() {
  ProgramBuilder p(1);
  const Minifloat number = DecodeMinifloat(p.Input(0), 5, 2);
  // The largest exponent's is that of f32: infinity, or NaN with a fraction.
  const Lane special = Emit2(Op::kOr, number.bits, p.ConstBits(0x7f800000));
  const Lane all = Select(Less(number.magnitude, 124.0f), number.bits, special);
  return p.Build(Emit2(Op::kOr, all, number.sign));
}

Program E8m0() {  // 2^(code - 127): the exponent field of an f32; the least one is subnormal
  ProgramBuilder p(1);
  const Lane code = p.Input(0);
  const Lane number = ToFloat(code);
  const Lane power = Select(Less(number, 1.0f), p.ConstBits(0x00400000), Shl(code, 23));
  return p.Build(Select(Less(number, 255.0f), power, QuietNan(p)));
}

Program Integer() {
  ProgramBuilder p(1);
  return p.Build(ToFloat(p.Input(0)));
}

Decoding Bytes(Program program, bool is_signed = false) {
  Decoding decoding;
  decoding.is_signed = is_signed;
  decoding.program = std::move(program);
  return decoding;
}

Decoding Levels(int bits, const std::array<float, kLevels>& levels) {
  Decoding decoding;
  decoding.bits = bits;
  decoding.levels = levels;
  return decoding;
}

// 0, 1, 2, ..., less `midpoint`.
Decoding Counting(int bits, int midpoint) {
  std::array<float, kLevels> levels;
  for (int i = 0; i < kLevels; ++i) levels[static_cast<size_t>(i)] = static_cast<float>(i % (1 << bits) - midpoint);
  return Levels(bits, levels);
}

struct Decodings {
  Decoding signed_bytes = Bytes(Integer(), true), bytes = Bytes(Integer());
  Decoding nibbles = Counting(4, 0), centered_nibbles = Counting(4, 8);
  Decoding pairs = Counting(2, 0), centered_pairs = Counting(2, 2);
  Decoding nf4 = Levels(4, kNf4Levels), e2m1 = Levels(4, kE2m1Levels);
  Decoding e4m3 = Bytes(E4m3()), e5m2 = Bytes(E5m2());
};

// Never destroyed: kernels are written down when the process ends.
const Decodings& AllDecodings() {
  static const Decodings* const all = new Decodings;
  return *all;
}

const Decoding& IntegersOf(const QuantScheme& scheme) {
  const Decodings& all = AllDecodings();
  switch (scheme.bits) {
    case 8:
      return scheme.symmetric ? all.signed_bytes : all.bytes;
    case 4:
      return scheme.symmetric ? all.centered_nibbles : all.nibbles;
    default:
      return scheme.symmetric ? all.centered_pairs : all.pairs;
  }
}

}  // namespace

const Decoding& DecodingOf(const QuantScheme& scheme) {
  const Decodings& all = AllDecodings();
  switch (scheme.codebook) {
    case Codebook::kNf4:
      return all.nf4;
    case Codebook::kE2m1:
      return all.e2m1;
    case Codebook::kE4m3:
      return all.e4m3;
    case Codebook::kE5m2:
      return all.e5m2;
    case Codebook::kInteger:
      break;
  }
  return IntegersOf(scheme);
}

std::optional<int> CountsFrom(const Decoding& decoding) {
  if (!decoding.tabled()) return std::nullopt;
  const float first = decoding.levels[0];
  const int codes = 1 << decoding.bits;
  for (int i = 0; i < kLevels; ++i) {
    if (decoding.levels[static_cast<size_t>(i)] != first + static_cast<float>(i % codes)) return std::nullopt;
  }
  const auto midpoint = static_cast<int>(-first);
  return static_cast<float>(-midpoint) == first ? std::optional(midpoint) : std::nullopt;
}

bool IsByteScale(ScaleType type) { return type == ScaleType::kE8m0 || type == ScaleType::kE4m3; }

const Program& ScaleProgramOf(ScaleType type) {
  static const Program* const e8m0 = new Program(E8m0());
  static const Program* const e4m3 = new Program(E4m3());
  return type == ScaleType::kE8m0 ? *e8m0 : *e4m3;
}

// Integers of eight bits and a sign are; the levels of NF4 are not.
bool DecodesToBf16(const QuantScheme& scheme) { return scheme.codebook != Codebook::kNf4; }

uint64_t DecodingFingerprint(const QuantScheme& scheme) {
  Fnv1a hash;
  const Decoding& decoding = DecodingOf(scheme);
  const auto add_program = [&](const Program& program) {
    const uint64_t fingerprint = program.Fingerprint();
    hash.AddWord(static_cast<uint32_t>(fingerprint));
    hash.AddWord(static_cast<uint32_t>(fingerprint >> 32));
  };
  if (decoding.tabled()) {
    for (const float level : decoding.levels) hash.AddWord(std::bit_cast<uint32_t>(level));
  } else {
    hash.AddByte(decoding.is_signed ? 1 : 0);
    add_program(decoding.program);
  }
  if (IsByteScale(scheme.scale_type)) add_program(ScaleProgramOf(scheme.scale_type));
  return hash.value();
}

}  // namespace clikart::ir
