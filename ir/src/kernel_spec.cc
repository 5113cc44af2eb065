#include "clikart/ir/kernel_spec.h"

#include <array>
#include <limits>
#include <vector>

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "fnv.h"
#include "text.h"

namespace clikart::ir {
namespace {

constexpr std::array<std::string_view, 2> kAccessNames = {"dense", "indirect"};
constexpr std::array<std::string_view, 5> kContractionNames = {"float", "weight_only", "row_int8", "integer",
                                                               "depthwise"};
constexpr std::array<std::string_view, 2> kBiasNames = {"none", "f32"};
constexpr std::array<std::string_view, 5> kProductNames = {"fma", "dot_bf16", "tile_bf16", "tile_f16", "tile_int8"};
constexpr std::array<std::string_view, 3> kOrderNames = {"natural", "g_idx", "g_idx_uneven"};
constexpr std::array<std::string_view, 2> kOutputNames = {"real", "requantized"};

// Sizes stay far from overflow when multiplied by an element size.
constexpr int64_t kMaxSize = int64_t{1} << 40;

std::string ActivationText(Activation activation) {
  return Text(Name(activation), "@", absl::Hex(ProgramOf(activation).Fingerprint(), absl::kZeroPad16));
}

// The scheme with a fingerprint of how its codes and scales are decoded: changed numbers are another kernel.
std::string SchemeText(const std::optional<QuantScheme>& scheme) {
  if (!scheme) return "none";
  return Text(scheme->ToString(), "@", absl::Hex(DecodingFingerprint(*scheme), absl::kZeroPad16));
}

// Reads "name=value" words in order and keeps the first error.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text), words_(Split(text, ' ')) {}

  std::string_view Next(std::string_view name) {
    if (!status_.ok()) return {};
    if (next_ == words_.size()) {
      Fail(name, "missing");
      return {};
    }
    std::string_view word = words_[next_++];
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || word.substr(0, equals) != name) {
      Fail(name, Text("found \"", word, "\""));
      return {};
    }
    return word.substr(equals + 1);
  }

  template <typename Enum, size_t N>
  void Read(std::string_view name, const std::array<std::string_view, N>& names, Enum& value) {
    const std::string_view text = Next(name);
    if (!status_.ok()) return;
    for (size_t i = 0; i < N; ++i) {
      if (text != names[i]) continue;
      value = static_cast<Enum>(i);
      return;
    }
    Fail(name, Text("found \"", text, "\", expected ", names[0], " or another of its ", N, " values"));
  }

  void Read(std::string_view name, int64_t& value) {
    const std::string_view text = Next(name);
    if (!status_.ok()) return;
    if (!ParseInteger(text, value)) Fail(name, Text("\"", text, "\" is not a number"));
  }

  void Read(std::string_view name, int& value) {
    int64_t wide = value;
    Read(name, wide);
    if (!status_.ok()) return;
    if (wide < 0 || wide > std::numeric_limits<int>::max()) return Fail(name, Text(wide, " is out of range"));
    value = static_cast<int>(wide);
  }

  void Read(std::string_view name, DType& value) {
    const std::string_view text = Next(name);
    if (!status_.ok()) return;
    const std::optional<DType> dtype = ParseDType(text);
    if (!dtype || ShortName(*dtype) != text) return Fail(name, Text("\"", text, "\" is not a dtype"));
    value = *dtype;
  }

  void Read(std::string_view name, Activation& value) {
    const std::string_view text = Next(name);
    if (!status_.ok()) return;
    const absl::StatusOr<Activation> activation = ParseActivation(text.substr(0, text.find('@')));
    if (!activation.ok()) return Fail(name, FromAbsl(activation.status().message()));
    if (ActivationText(*activation) != text) {
      return Fail(name, Text("\"", text, "\" is another formula than this build's ", ActivationText(*activation)));
    }
    value = *activation;
  }

  void Read(std::string_view name, std::optional<QuantScheme>& value) {
    const std::string_view text = Next(name);
    if (!status_.ok()) return;
    value = std::nullopt;
    if (text == "none") return;
    const absl::StatusOr<QuantScheme> scheme = QuantScheme::Parse(text.substr(0, text.find('@')));
    if (!scheme.ok()) return Fail(name, FromAbsl(scheme.status().message()));
    if (SchemeText(*scheme) != text) return Fail(name, Text("\"", text, "\", expected ", SchemeText(*scheme)));
    value = *scheme;
  }

  absl::Status Finish() {
    if (status_.ok() && next_ != words_.size()) Fail("end", Text("found \"", words_[next_], "\""));
    return status_;
  }

 private:
  void Fail(std::string_view name, std::string_view what) {
    status_ = absl::InvalidArgumentError(Text("kernel spec \"", text_, "\": ", name, ": ", what));
  }

  std::string_view text_;
  std::vector<std::string_view> words_;
  size_t next_ = 0;
  absl::Status status_;
};

absl::Status FieldError(std::string_view field, std::string_view found, std::string_view expected) {
  return absl::InvalidArgumentError(Text("kernel spec: ", field, " is ", found, ", expected ", expected));
}

absl::Status VerifySizes(const KernelSpec& spec) {
  const std::pair<std::string_view, int64_t> sizes[] = {{"n", spec.n}, {"k", spec.k}, {"taps", spec.taps}};
  for (const auto& [name, value] : sizes) {
    if (value < 0 || value > kMaxSize) return FieldError(name, Text(value), "0 to 2^40");
  }
  if (spec.k > 0 && spec.taps > kMaxSize / spec.k) {
    return FieldError("taps * k", Text(spec.taps, " * ", spec.k), "at most 2^40");
  }
  if (spec.access == Access::kDense && spec.taps != 1) {
    return FieldError("taps", Text(spec.taps), "1 with dense access");
  }
  if (spec.contraction == Contraction::kDepthwise) {
    if (spec.k != 1) return FieldError("k", Text(spec.k), "1 in a depthwise contraction");
    if (spec.gated()) return FieldError("act", Name(spec.activation), "a pointwise one in a depthwise contraction");
  }
  if (spec.gated() && spec.n % 2 != 0) return FieldError("n", Text(spec.n), "an even number under a gate");
  if (spec.gated() && spec.bias != BiasKind::kNone) return FieldError("bias", "f32", "none under a gate");
  return absl::OkStatus();
}

bool TakesFloatWeights(const KernelSpec& spec) {
  return spec.contraction == Contraction::kFloat || spec.contraction == Contraction::kDepthwise;
}

absl::Status VerifyDTypes(const KernelSpec& spec) {
  if (spec.contraction == Contraction::kInteger) {
    if (spec.x != DType::kInt8 && spec.x != DType::kUInt8) return FieldError("x", Name(spec.x), "int8 or uint8");
    if (spec.w != DType::kInt8) return FieldError("w", Name(spec.w), "int8");
    const DType y = spec.requantize ? spec.x : DType::kFloat32;
    if (spec.y != y) return FieldError("y", Name(spec.y), Name(y));
    return absl::OkStatus();
  }
  if (!IsFloat(spec.x)) return FieldError("x", Name(spec.x), "a float type");
  if (!IsFloat(spec.y)) return FieldError("y", Name(spec.y), "a float type");
  if (TakesFloatWeights(spec)) {
    if (!IsFloat(spec.w)) return FieldError("w", Name(spec.w), "a float type");
  } else if (spec.scheme && spec.w != spec.scheme->CodeDType()) {
    return FieldError("w", Name(spec.w), Name(spec.scheme->CodeDType()));
  }
  return absl::OkStatus();
}

absl::Status VerifyCodeInterleave(const KernelSpec& spec) {
  const int wanted = CodeInterleave(spec.contraction, *spec.scheme);
  if (spec.interleave == wanted) return absl::OkStatus();
  return FieldError("interleave", Text(spec.interleave), Text(wanted, " for ", spec.scheme->ToString()));
}

absl::Status VerifyProduct(const KernelSpec& spec) {
  const int interleave = spec.interleave;
  if (spec.quantized_weights()) {
    if (absl::Status status = VerifyCodeInterleave(spec); !status.ok()) return status;
    if (spec.product == Product::kFma) return absl::OkStatus();
    const bool integers = spec.contraction == Contraction::kRowInt8;
    if (spec.product == Product::kTileInt8 && integers) return absl::OkStatus();
    if (spec.product == Product::kTileBf16 && spec.x == DType::kBFloat16 && DecodesToBf16(*spec.scheme) && !integers) {
      return absl::OkStatus();
    }
    return FieldError("product", Name(spec.product), "fma for this contraction");
  }
  if (interleave != 1 && interleave != 2 && interleave != 4)
    return FieldError("interleave", Text(interleave), "1, 2 or 4");
  const bool packs = spec.contraction == Contraction::kFloat || spec.contraction == Contraction::kInteger;
  const int most = packs ? 4 / static_cast<int>(SizeOf(spec.w)) : 1;
  if (interleave > most)
    return FieldError("interleave", Text(interleave), Text("at most ", most, " for these weights"));
  if (spec.contraction == Contraction::kInteger && interleave != most) {
    return FieldError("interleave", Text(interleave), Text(most, " for integer weights"));
  }
  if (spec.product == Product::kFma) return absl::OkStatus();
  const std::string_view product = Name(spec.product);
  const DType dtype = spec.product == Product::kTileF16 ? DType::kFloat16 : DType::kBFloat16;
  if (spec.contraction != Contraction::kFloat || spec.product == Product::kTileInt8) {
    return FieldError("product", product, "fma for this contraction");
  }
  if (spec.x != dtype || spec.w != dtype) {
    return FieldError("product", product, Text("fma for ", Name(spec.x), " by ", Name(spec.w)));
  }
  if (interleave != 2) return FieldError("interleave", Text(interleave), Text("2 for product ", product));
  return absl::OkStatus();
}

absl::Status VerifyQuantization(const KernelSpec& spec) {
  const bool has_scheme = spec.quantized_weights();
  if (has_scheme != spec.scheme.has_value()) {
    return FieldError("scheme", SchemeText(spec.scheme), has_scheme ? "a scheme" : "none");
  }
  if (spec.scheme) {
    if (absl::Status status = spec.scheme->Validate(); !status.ok()) return status;
    // Exact integer dots need codes that are integers.
    if (spec.contraction == Contraction::kRowInt8 && spec.scheme->codebook != Codebook::kInteger) {
      return FieldError("scheme", spec.scheme->ToString(), "integer codes for int8 compute");
    }
  }
  if (spec.order != InputOrder::kNatural && !has_scheme) {
    return FieldError("order", kOrderNames[static_cast<size_t>(spec.order)], "natural without a scheme");
  }
  if (spec.requantize && spec.contraction != Contraction::kInteger) {
    return FieldError("out", "requantized", "real for a contraction of floats");
  }
  if (spec.access == Access::kIndirect && !TakesFloatWeights(spec)) {
    return FieldError("access", "indirect", "dense for quantized weights");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(Product product) { return kProductNames[static_cast<size_t>(product)]; }

std::string KernelSpec::ToString() const {
  return Text("kind=", kContractionNames[static_cast<size_t>(contraction)],
              " access=", kAccessNames[static_cast<size_t>(access)], " n=", n, " k=", k, " taps=", taps,
              " x=", ShortName(x), " w=", ShortName(w), " y=", ShortName(y),
              " bias=", kBiasNames[static_cast<size_t>(bias)], " act=", ActivationText(activation),
              " product=", Name(product), " interleave=", interleave, " scheme=", SchemeText(scheme),
              " order=", kOrderNames[static_cast<size_t>(order)], " out=", kOutputNames[requantize]);
}

absl::StatusOr<KernelSpec> KernelSpec::Parse(std::string_view text) {
  KernelSpec spec;
  FieldReader reader(text);
  reader.Read("kind", kContractionNames, spec.contraction);
  reader.Read("access", kAccessNames, spec.access);
  reader.Read("n", spec.n);
  reader.Read("k", spec.k);
  reader.Read("taps", spec.taps);
  reader.Read("x", spec.x);
  reader.Read("w", spec.w);
  reader.Read("y", spec.y);
  reader.Read("bias", kBiasNames, spec.bias);
  reader.Read("act", spec.activation);
  reader.Read("product", kProductNames, spec.product);
  reader.Read("interleave", spec.interleave);
  reader.Read("scheme", spec.scheme);
  reader.Read("order", kOrderNames, spec.order);
  reader.Read("out", kOutputNames, spec.requantize);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return spec;
}

absl::Status KernelSpec::Verify() const {
  if (absl::Status status = VerifySizes(*this); !status.ok()) return status;
  if (absl::Status status = VerifyQuantization(*this); !status.ok()) return status;
  if (absl::Status status = VerifyDTypes(*this); !status.ok()) return status;
  return VerifyProduct(*this);
}

uint64_t KernelSpec::Hash() const {
  Fnv1a hash;
  hash.AddText(ToString());
  return hash.value();
}

}  // namespace clikart::ir
