// How a weight is quantized: the value behind "int4_g128_asym" and "mxfp4".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "clikart/ir/dtype.h"

namespace clikart::ir {

// What a code stands for. kInteger: the number itself, less the zero point; the others are tables
// (or, for fp8, the number that the byte encodes).
enum class Codebook : uint8_t { kInteger, kNf4, kE2m1, kE4m3, kE5m2 };
inline constexpr std::array kCodebooks = {Codebook::kInteger, Codebook::kNf4, Codebook::kE2m1, Codebook::kE4m3,
                                          Codebook::kE5m2};

// How a group's scale is stored. The last two are one byte each, kept in uint8 tensors.
enum class ScaleType : uint8_t { kFloat32, kFloat16, kBFloat16, kE8m0, kE4m3 };

// A value. Canonical text: "int{bits}[_g{size}][_asym|_min][_{scale}]" for integers ("_g" absent: one
// group for the whole row; the scale type absent: f16), "nf4_g64", "fp4_g32" (e2m1), "fp8_e4m3",
// "fp8_e5m2" likewise; "mxfp4" = e2m1, groups of 32, e8m0 scales; "nvfp4" = e2m1, groups of 16,
// e4m3 scales and a global one.
struct QuantScheme {
  int bits = 8;  // 2, 4 or 8; others are refused by name when a layer is built
  bool symmetric = true;
  int64_t group_size = -1;  // inputs a scale covers; -1: the whole row
  ScaleType scale_type = ScaleType::kFloat16;
  Codebook codebook = Codebook::kInteger;
  // Integers that are not symmetric: a group is code * scale + minimum instead of having a zero point.
  bool minimum = false;

  // The scheme, checked: an error names the field, what was found and what is possible.
  absl::Status Validate() const;
  std::string ToString() const;
  static absl::StatusOr<QuantScheme> Parse(std::string_view text);

  // Groups of a row of `inputs` columns; the last one may be short.
  int64_t GroupCount(int64_t inputs) const;
  bool HasGlobalScale() const;  // nvfp4
  bool HasZeroPoint() const { return !symmetric && !minimum; }
  int Midpoint() const;                     // what symmetric codes without a sign stand around: 2^(bits - 1), else 0
  int64_t CodeBytes(int64_t inputs) const;  // of a weight row in a checkpoint
  DType CodeDType() const;                  // int8 for symmetric 8-bit integers, else uint8
  DType ScaleDType() const;                 // the tensor dtype that holds the scales

  friend bool operator==(const QuantScheme&, const QuantScheme&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const QuantScheme& s) {
    return H::combine(std::move(h), s.bits, s.symmetric, s.group_size, s.scale_type, s.codebook, s.minimum);
  }
};

// The number a code stands for before the zero point is subtracted: the table's value for a codebook, the number
// itself for fp8; symmetric codes without a sign are centered (int4: code - 8).
float DecodeCode(const QuantScheme& scheme, uint8_t code);
// A stored scale as float (f32/f16/bf16 bits, e8m0: 2^(b-127), 255 is NaN; e4m3: OCP E4M3FN).
float DecodeScale(ScaleType type, uint32_t bits);

}  // namespace clikart::ir
