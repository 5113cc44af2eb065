// What a code stands for, written once for every emitter: a table for codes of up to four bits, a program for
// bytes. docs/adding-a-scheme.md leads through adding one.
//
// A kernel brings a code to a 32-bit lane (extended by its sign where it has one), decodes it, and takes the
// group's zero point from it where the scheme has zero points; both steps are exact.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "clikart/ir/program.h"
#include "clikart/ir/quant_scheme.h"

namespace clikart::ir {

inline constexpr int kLevels = 16;

struct Decoding {
  int bits = 8;
  bool is_signed = false;
  // bits < 8: by code; repeated where there are fewer than kLevels codes, so that what lies above a code's bits
  // does not matter.
  std::array<float, kLevels> levels{};
  // bits == 8: input 0 is the code as an integer, the answer is a float.
  Program program;

  bool tabled() const { return bits < 8; }
};

// Made once for each codebook and width.
const Decoding& DecodingOf(const QuantScheme& scheme);

// Where the levels of a table count: level of code c is c less this number.
std::optional<int> CountsFrom(const Decoding& decoding);

// Scales of one byte: input 0 is the byte as an integer, the answer is a float. Other scales are floats as they lie.
const Program& ScaleProgramOf(ScaleType type);  // kE8m0 or kE4m3
bool IsByteScale(ScaleType type);

// code - zero point is a bf16 number for every code and zero point.
bool DecodesToBf16(const QuantScheme& scheme);

// Of the numbers behind codes and scales; stable over processes and builds.
uint64_t DecodingFingerprint(const QuantScheme& scheme);

}  // namespace clikart::ir
