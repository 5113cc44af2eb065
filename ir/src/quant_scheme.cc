#include "clikart/ir/quant_scheme.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "clikart/ir/decoding.h"
#include "text.h"

namespace clikart::ir {
namespace {

constexpr std::string_view kSpellings =
    "expected int2, int4 or int8, nf4, fp4, fp8_e4m3 or fp8_e5m2, followed by _g{size}, _asym or _min (integers) and "
    "one of _f32, "
    "_bf16, _e8m0, _e4m3 (f16 scales when absent); or mxfp4, nvfp4";

constexpr std::array<std::string_view, 5> kScaleNames = {"f32", "f16", "bf16", "e8m0", "e4m3"};
constexpr std::array<std::string_view, 5> kCodebookNames = {"int", "nf4", "fp4", "fp8_e4m3", "fp8_e5m2"};

std::string_view ScaleName(ScaleType type) { return kScaleNames[static_cast<size_t>(type)]; }
std::string_view CodebookName(Codebook codebook) { return kCodebookNames[static_cast<size_t>(codebook)]; }
int CodebookBits(Codebook codebook) { return codebook == Codebook::kNf4 || codebook == Codebook::kE2m1 ? 4 : 8; }

constexpr QuantScheme kMxfp4 = {4, true, 32, ScaleType::kE8m0, Codebook::kE2m1};
constexpr QuantScheme kNvfp4 = {4, true, 16, ScaleType::kE4m3, Codebook::kE2m1};

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
    if (bits != 2 && bits != 4 && bits != 8) {
      return absl::InvalidArgumentError(
          Text("int", bits, ": ", bits, "-bit codes are not served; bits may be 2, 4 or 8"));
    }
    if (minimum && symmetric) {
      return absl::InvalidArgumentError(Text("int", bits, ": a minimum needs symmetric to be false"));
    }
    if (minimum && (scale_type == ScaleType::kE8m0 || scale_type == ScaleType::kE4m3)) {
      return absl::InvalidArgumentError(
          Text("int", bits, ": a minimum is kept in the scales' type, expected f32, f16 or bf16, found ",
               ScaleName(scale_type)));
    }
  } else {
    if (bits != CodebookBits(codebook)) {
      return absl::InvalidArgumentError(
          Text(CodebookName(codebook), ": bits is ", bits, ", expected ", CodebookBits(codebook)));
    }
    if (!symmetric || minimum) {
      return absl::InvalidArgumentError(
          Text(CodebookName(codebook), ": a codebook has no zero point and no minimum; symmetric must be true"));
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
  if (!symmetric) text += minimum ? "_min" : "_asym";
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
  if (next < words.size() && (words[next] == "asym" || words[next] == "min")) {
    scheme.symmetric = false;
    scheme.minimum = words[next] == "min";
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

int QuantScheme::Midpoint() const {
  return codebook == Codebook::kInteger && symmetric && bits < 8 ? 1 << (bits - 1) : 0;
}

int64_t QuantScheme::CodeBytes(int64_t inputs) const { return (inputs * bits + 7) / 8; }

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
  const Decoding& decoding = DecodingOf(scheme);
  if (decoding.tabled()) return decoding.levels[code % kLevels];
  const int32_t lane = decoding.is_signed ? static_cast<int8_t>(code) : code;
  const auto input = std::bit_cast<float>(lane);
  return Evaluate(decoding.program, &input);
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
    case ScaleType::kE4m3:
      break;
  }
  const auto input = std::bit_cast<float>(bits);
  return Evaluate(ScaleProgramOf(type), &input);
}

}  // namespace clikart::ir
