// Integer codes that become floats in the place where they lie.
//
// With `bits` of a code at bit b of a lane, the float with exponent 2^(23 - b) and nothing else in its fraction is
// 2^(23 - b) + code, and one exact subtraction of 2^(23 - b) + zero point leaves what is wanted. So a mask replaces
// the shift as long as the code lies within the fraction; the codes above are shifted down first.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "clikart/ir/decoding.h"

namespace clikart::codegen {

// Places in a unit where codes are decoded; place 0 also takes those that are shifted down.
inline constexpr int kCodePositions = 5;

class PlacedCodes {
 public:
  // None where the codes' levels are not consecutive integers.
  static std::optional<PlacedCodes> Of(const ir::Decoding& decoding) {
    const std::optional<int> midpoint = ir::CountsFrom(decoding);
    return midpoint.has_value() ? std::optional(PlacedCodes(decoding.bits, *midpoint)) : std::nullopt;
  }

  // The position that code `code` of a unit is decoded at. Numbers below 0 are of shifted codes.
  int PositionOf(int code) const {
    const bool in_place = code >= 0 && code < kCodePositions && (code + 1) * bits_ <= kFraction;
    return in_place ? code : 0;
  }
  uint32_t Mask(int position) const { return ((1u << bits_) - 1) << position * bits_; }
  // What a masked code is combined with, and what the float is less: with a zero point, that is added to it.
  float Base(int position) const {
    return std::bit_cast<float>(static_cast<uint32_t>(kBias + kFraction - position * bits_) << kFraction);
  }
  float Offset(int position) const { return Base(position) + static_cast<float>(midpoint_); }

 private:
  static constexpr int kFraction = 23, kBias = 127;  // of an f32
  PlacedCodes(int bits, int midpoint) : bits_(bits), midpoint_(midpoint) {}

  int bits_;
  int midpoint_;
};

}  // namespace clikart::codegen
