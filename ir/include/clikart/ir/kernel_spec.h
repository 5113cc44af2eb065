// What one kernel computes: a value whose text form is the cache signature.
//
//   y[m, :] = epilogue(contract(x[m, :], w) + bias)
//
// over K = taps * k inputs, in the order that spec/numerics.md fixes. The number of rows m is not
// part of it: one kernel serves every batch size. A depthwise contraction multiplies lane by lane
// instead: output column c sees channel c of each tap alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "clikart/ir/activation.h"
#include "clikart/ir/dtype.h"
#include "clikart/ir/quant_scheme.h"

namespace clikart::ir {

// How rows of x are reached.
enum class Access : uint8_t {
  kDense,     // row i at x + i * stride
  kIndirect,  // taps rows of k inputs each, through a table of offsets (convolutions)
};

enum class Contraction : uint8_t {
  kFloat,       // float weights, f32 accumulation (rule 1)
  kWeightOnly,  // quantized weights, float inputs (rule 3)
  kRowInt8,     // quantized weights, inputs quantized row by row (rule 6, compute="int8")
  kInteger,     // int8/uint8 inputs and int8 weights (rule 6, QLinear)
  kDepthwise,   // kFloat with one channel of x for each output: rows of x have n channels, k is 1
};

enum class BiasKind : uint8_t { kNone, kFloat32 };

// The order in which inputs are summed: weight_g_idx sorts them by group.
enum class InputOrder : uint8_t {
  kNatural,  // as they come; groups of group_size
  kSorted,   // sorted; groups of group_size, the last one shorter
  kUneven,   // sorted; groups of any size
};

// The instruction that multiplies and adds. kFma is the contraction's own rule to the bit, and so is kTileInt8, as sums
// of integers are exact; the others are rule 5. One that an emitter has no form of may be computed as kFma is.
enum class Product : uint8_t {
  kFma,
  kDotBf16,   // vdpbf16ps: bf16 x bf16, two k steps at a time
  kTileBf16,  // tdpbf16ps: the same over tiles
  kTileF16,   // tdpfp16ps: f16 x f16
  kTileInt8,  // tdpbsud: int8 x uint8 over tiles (kRowInt8)
};
std::string_view Name(Product product);  // as in the text: "fma", "dot_bf16"
// Sums are the instruction's own, within rule 5's bound.
constexpr bool HasOwnSums(Product product) { return product != Product::kFma && product != Product::kTileInt8; }

struct KernelSpec {
  Contraction contraction = Contraction::kFloat;
  Access access = Access::kDense;
  int64_t n = 0;     // weight rows over all parts (for a gated epilogue twice the outputs)
  int64_t k = 0;     // inputs of one tap that an output sees
  int64_t taps = 1;  // kernel positions; 1 when dense
  DType x = DType::kFloat32;
  DType w = DType::kFloat32;  // as packed; codes: int8 or uint8
  DType y = DType::kFloat32;
  BiasKind bias = BiasKind::kNone;
  Activation activation = Activation::kNone;
  Product product = Product::kFma;
  int interleave = 1;                       // k steps side by side in a packed lane: panel_layout.h, code_layout.h
  std::optional<QuantScheme> scheme;        // kWeightOnly and kRowInt8
  InputOrder order = InputOrder::kNatural;  // not kNatural: weight_g_idx is given
  bool requantize = false;                  // kInteger with an output scale

  bool quantized_weights() const {
    return contraction == Contraction::kWeightOnly || contraction == Contraction::kRowInt8;
  }
  int64_t depth() const { return taps * k; }
  // Channels that a row of x has in one tap.
  int64_t channels() const { return contraction == Contraction::kDepthwise ? n : k; }
  bool gated() const { return IsGated(activation); }
  int64_t outputs() const { return gated() ? n / 2 : n; }

  // Every field is in the text, so equal text means equal specs: Parse(ToString()) == *this. The
  // activation is printed with its program's fingerprint, so a changed formula is another kernel.
  std::string ToString() const;
  static absl::StatusOr<KernelSpec> Parse(std::string_view text);
  // The spec is one that some emitter can serve (dtypes fit the contraction, sizes are not
  // negative, gated means even n and no bias, ...). An error names the field.
  absl::Status Verify() const;
  uint64_t Hash() const;  // stable over processes

  friend bool operator==(const KernelSpec&, const KernelSpec&) = default;
};

}  // namespace clikart::ir
