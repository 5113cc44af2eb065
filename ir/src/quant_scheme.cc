#include "clikart/ir/quant_scheme.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "text.h"

namespace clikart::ir {
namespace {

constexpr std::string_view kSpellings =
    "expected int4 or int8, nf4, fp4, fp8_e4m3 or fp8_e5m2, followed by _g{size}, _asym (integers) and one of _f32, "
    "_bf16, _e8m0, _e4m3 (f16 scales when absent); or mxfp4, nvfp4";

constexpr std::array<std::string_view, 5> kScaleNames = {"f32", "f16", "bf16", "e8m0", "e4m3"};
constexpr std::array<std::string_view, 5> kCodebookNames = {"int", "nf4", "fp4", "fp8_e4m3", "fp8_e5m2"};

std::string_view ScaleName(ScaleType type) { return kScaleNames[static_cast<size_t>(type)]; }
std::string_view CodebookName(Codebook codebook) { return kCodebookNames[static_cast<size_t>(codebook)]; }
int CodebookBits(Codebook codebook) { return codebook == Codebook::kNf4 || codebook == Codebook::kE2m1 ? 4 : 8; }

constexpr QuantScheme kMxfp4 = {4, true, 32, ScaleType::kE8m0, Codebook::kE2m1};
constexpr QuantScheme kNvfp4 = {4, true, 16, ScaleType::kE4m3, Codebook::kE2m1};

// The sixteen levels of NF4: quantiles of a normal distribution scaled to [-1, 1], as published with
// QLoRA (Dettmers et al., 2023).
constexpr std::array<float, 16> kNf4Levels = {
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

// Sign, then exponent, then fraction; the exponent 0 is subnormal.
float DecodeMinifloat(uint32_t code, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t fraction = code & ((1u << fraction_bits) - 1);
  const int exponent = static_cast<int>((code >> fraction_bits) & ((1u << exponent_bits) - 1));
  const bool negative = (code >> (exponent_bits + fraction_bits)) & 1;
  const float significand = static_cast<float>(exponent == 0 ? fraction : fraction + (1u << fraction_bits));
  const float magnitude = std::ldexp(significand, std::max(exponent, 1) - bias - fraction_bits);
  return negative ? -magnitude : magnitude;
}

float DecodeE4m3(uint32_t code) {  // no infinities; all ones is NaN
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return DecodeMinifloat(code, 4, 3);
}

float DecodeE5m2(uint32_t code) {
  if ((code & 0x7f) > 0x7c) return std::numeric_limits<float>::quiet_NaN();
  if ((code & 0x7f) == 0x7c) {
    return code & 0x80 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  return DecodeMinifloat(code, 5, 2);
}

float DecodeE8m0(uint32_t code) {  // 2^(code - 127), an f32's exponent field; the least one is subnormal
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000u : code << 23);
}

absl::Status ParseError(std::string_view text, std::string_view what) {
  return absl::InvalidArgumentError(Text("quantization scheme \"", text, "\": ", what));
}

std::optional<ScaleType> ParseScale(std::string_view text) {
  for (size_t i = 0; i < kScaleNames.size(); ++i) {
    if (text == kScaleNames[i]) return static_cast<ScaleType>(i);
  }
  return std::nullopt;
}

}  // namespace

absl::Status QuantScheme::Validate() const {
  if (codebook == Codebook::kInteger) {
    if (bits != 4 && bits != 8) {
      return absl::InvalidArgumentError(Text("int", bits, ": ", bits, "-bit codes are not served; bits may be 4 or 8"));
    }
  } else {
    if (bits != CodebookBits(codebook)) {
      return absl::InvalidArgumentError(
          Text(CodebookName(codebook), ": bits is ", bits, ", expected ", CodebookBits(codebook)));
    }
    if (!symmetric) {
      return absl::InvalidArgumentError(
          Text(CodebookName(codebook), ": a codebook has no zero point; symmetric must be true"));
    }
  }
  if (group_size != -1 && group_size < 1) {
    return absl::InvalidArgumentError(
        Text("group_size is ", group_size, ", expected at least 1, or -1 for one group a row"));
  }
  return absl::OkStatus();
}

std::string QuantScheme::ToString() const {
  if (*this == kMxfp4) return "mxfp4";
  if (*this == kNvfp4) return "nvfp4";
  std::string text(CodebookName(codebook));
  if (codebook == Codebook::kInteger) text += Text(bits);
  if (group_size != -1) text += Text("_g", group_size);
  if (!symmetric) text += "_asym";
  if (scale_type != ScaleType::kFloat16) text += Text("_", ScaleName(scale_type));
  return text;
}

absl::StatusOr<QuantScheme> QuantScheme::Parse(std::string_view text) {
  if (text == "mxfp4") return kMxfp4;
  if (text == "nvfp4") return kNvfp4;
  QuantScheme scheme;
  std::vector<std::string_view> words = Split(text, '_');
  size_t next = 1;
  std::string_view head = words[0];
  if (head.starts_with("int")) {
    head.remove_prefix(3);
    if (!ParseInteger(head, scheme.bits) || scheme.bits < 1 || scheme.bits > 99) return ParseError(text, kSpellings);
  } else {
    if (words[0] == "fp8" && words.size() > 1) next = 2;
    const std::string_view name = text.substr(0, next == 2 ? 4 + words[1].size() : words[0].size());
    bool found = false;
    for (size_t i = 1; i < kCodebookNames.size(); ++i) {
      if (name != kCodebookNames[i]) continue;
      scheme.codebook = static_cast<Codebook>(i);
      scheme.bits = CodebookBits(scheme.codebook);
      found = true;
    }
    if (!found) return ParseError(text, kSpellings);
  }
  if (next < words.size() && words[next].starts_with("g")) {
    const std::string_view size = words[next].substr(1);
    if (!ParseInteger(size, scheme.group_size) || scheme.group_size < 1) {
      return ParseError(text, Text("group size \"", size, "\" is not a positive number"));
    }
    ++next;
  }
  if (next < words.size() && words[next] == "asym") {
    scheme.symmetric = false;
    ++next;
  }
  if (next < words.size()) {
    const std::optional<ScaleType> scale = ParseScale(words[next]);
    if (!scale) return ParseError(text, Text("unknown part \"", words[next], "\"; ", kSpellings));
    scheme.scale_type = *scale;
    ++next;
  }
  if (next != words.size()) {
    return ParseError(text, Text("unexpected part \"", words[next], "\"; ", kSpellings));
  }
  if (absl::Status status = scheme.Validate(); !status.ok()) return ParseError(text, FromAbsl(status.message()));
  return scheme;
}

int64_t QuantScheme::GroupCount(int64_t inputs) const {
  if (group_size == -1) return 1;
  return (inputs + group_size - 1) / group_size;
}

bool QuantScheme::HasGlobalScale() const { return *this == kNvfp4; }

DType QuantScheme::CodeDType() const {
  return codebook == Codebook::kInteger && bits == 8 && symmetric ? DType::kInt8 : DType::kUInt8;
}

DType QuantScheme::ScaleDType() const {
  switch (scale_type) {
    case ScaleType::kFloat32:
      return DType::kFloat32;
    case ScaleType::kFloat16:
      return DType::kFloat16;
    case ScaleType::kBFloat16:
      return DType::kBFloat16;
    case ScaleType::kE8m0:
    case ScaleType::kE4m3:
      return DType::kUInt8;
  }
  return DType::kUInt8;
}

float DecodeCode(const QuantScheme& scheme, uint8_t code) {
  switch (scheme.codebook) {
    case Codebook::kInteger:
      return scheme.CodeDType() == DType::kInt8 ? static_cast<float>(static_cast<int8_t>(code))
                                                : static_cast<float>(code);
    case Codebook::kNf4:
      return kNf4Levels[code & 15];
    case Codebook::kE2m1:
      return DecodeMinifloat(code & 15, 2, 1);
    case Codebook::kE4m3:
      return DecodeE4m3(code);
    case Codebook::kE5m2:
      return DecodeE5m2(code);
  }
  return 0.0f;
}

float DecodeScale(ScaleType type, uint32_t bits) {
  switch (type) {
    case ScaleType::kFloat32:
      return std::bit_cast<float>(bits);
    case ScaleType::kFloat16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case ScaleType::kBFloat16:
      return BFloat16ToFloat(static_cast<uint16_t>(bits));
    case ScaleType::kE8m0:
      return DecodeE8m0(bits);
    case ScaleType::kE4m3:
      return DecodeE4m3(bits);
  }
  return 0.0f;
}

}  // namespace clikart::ir
