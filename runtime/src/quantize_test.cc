#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"
#include "quantize_codes.h"

namespace clikart {
namespace {

using testing::Floats;
using ::testing::HasSubstr;
using testing::MakeLinear;
using testing::Random;
using testing::SameBits;
using testing::Value;

constexpr const char* kSchemes[] = {"int4",          "int4_g32",      "int4_g7_asym",
                                    "int4_asym_f32", "int8",          "int8_g16_bf16",
                                    "int8_asym",     "nf4_g16",       "fp4_g32_f32",
                                    "fp4_g16_bf16",  "int2_g16",      "int8_g16_asym_f32",
                                    "int4_g16_e8m0", "mxfp4",         "nvfp4",
                                    "fp8_e4m3",      "int2_g7_min",   "fp8_e4m3_g16_f32",
                                    "int4_g32_min",  "int8_min_bf16", "int4_g16_min_f32",
                                    "int2_asym",     "fp8_e5m2_bf16"};

QuantScheme Scheme(const std::string& text) { return Value(QuantScheme::Parse(text)); }

std::shared_ptr<Linear> LinearOf(const Tensor& weight, LinearOptions options = {}) {
  options.bias = false;
  const auto layer = Value(Linear::Create(weight.shape()[1], weight.shape()[0], options));
  EXPECT_TRUE(layer->Bind({{"weight", weight}}).ok());
  return layer;
}

std::shared_ptr<QLinearWoQ> Quantized(const Tensor& weight, const std::string& scheme,
                                      ScaleSearch scales = ScaleSearch::kMinMax) {
  return Value(QLinearWoQ::Quantize(*LinearOf(weight), {.scheme = Scheme(scheme), .scales = scales}));
}

// A layer's parameter as bytes; empty where it has none.
std::vector<uint8_t> BytesOf(const QLinearWoQ& layer, const std::string& name) {
  const absl::StatusOr<Tensor> tensor = layer.Parameter(name);
  if (!tensor.ok()) return {};
  const Tensor::Pinned pinned = Value(tensor->Pin());
  const auto* const data = reinterpret_cast<const uint8_t*>(pinned.data);
  return {data, data + tensor->nbytes()};
}

struct Decoded {
  std::vector<double> weights;
  std::vector<double> scales;    // of each weight
  std::vector<double> minimums;  // likewise
  std::vector<double> values;    // of each code, less the zero point
};

Decoded Decode(const QLinearWoQ& layer) {
  const QuantScheme& scheme = layer.scheme();
  const std::vector<uint8_t> codes = BytesOf(layer, "weight"), scales = BytesOf(layer, "weight_scale"),
                             zeros = BytesOf(layer, "weight_zero_point"), minimums = BytesOf(layer, "weight_minimum");
  const bool global = scheme.HasGlobalScale();
  const float global_scale = global ? testing::ToFloats(Value(layer.Parameter("weight_global_scale")))[0] : 1.0f;
  const auto depth = static_cast<size_t>(layer.in_features());
  const auto groups = static_cast<size_t>(scheme.GroupCount(layer.in_features()));
  const size_t group_size = scheme.group_size == -1 ? depth : static_cast<size_t>(scheme.group_size);
  const size_t scale_size = ir::SizeOf(scheme.ScaleDType());
  Decoded decoded;
  for (size_t row = 0; row < static_cast<size_t>(layer.out_features()); ++row) {
    for (size_t k = 0; k < depth; ++k) {
      const size_t group = row * groups + k / group_size;
      const auto stored = [&](const std::vector<uint8_t>& bytes) {
        uint32_t bits = 0;
        std::memcpy(&bits, bytes.data() + group * scale_size, scale_size);
        return ir::DecodeScale(scheme.scale_type, bits);
      };
      const float scale = stored(scales) * global_scale;
      const auto bits = static_cast<size_t>(scheme.bits);
      const size_t row_bytes = (depth * bits + 7) / 8;
      const int code = codes[row * row_bytes + k * bits / 8] >> (k * bits % 8) & ((1 << bits) - 1);
      double value = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
      if (!zeros.empty()) value -= zeros[group];
      const double minimum = minimums.empty() ? 0.0 : stored(minimums);
      decoded.scales.push_back(scale);
      decoded.values.push_back(value);
      decoded.minimums.push_back(minimum);
      decoded.weights.push_back(scale * value + minimum);
    }
  }
  return decoded;
}

// Half the distance between the levels around `value`: what rounding to the nearest may lose.
double HalfStep(const QuantScheme& scheme, double value) {
  if (scheme.codebook == ir::Codebook::kInteger) return 0.5;
  double below = -std::numeric_limits<double>::infinity(), above = -below;
  for (int code = 0; code < 1 << scheme.bits; ++code) {
    const double level = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
    if (!std::isfinite(level)) continue;
    if (level <= value) below = std::max(below, level);
    if (level >= value) above = std::min(above, level);
  }
  if (std::isinf(below) || std::isinf(above)) return 1e-6;  // beyond an end only by a product's rounding
  return (above - below) / 2;
}

double SquaredError(const Tensor& weight, const QLinearWoQ& layer) {
  const std::vector<float> wanted = testing::ToFloats(weight);
  const std::vector<double> found = Decode(layer).weights;
  double sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) sum += (wanted[i] - found[i]) * (wanted[i] - found[i]);
  return sum;
}

void ExpectWithinHalfAStep(const Tensor& weight, const QLinearWoQ& layer) {
  const std::vector<float> wanted = testing::ToFloats(weight);
  const Decoded decoded = Decode(layer);
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_TRUE(std::isfinite(decoded.scales[i]));
    ASSERT_GT(decoded.scales[i], 0);
    const double half =
        HalfStep(layer.scheme(), (wanted[i] - decoded.minimums[i]) / decoded.scales[i]) * decoded.scales[i];
    ASSERT_LE(std::abs(wanted[i] - decoded.weights[i]), half * (1 + 1e-12))
        << layer.scheme().ToString() << ", element " << i << ": " << wanted[i] << ", scale " << decoded.scales[i];
  }
}

TEST(Quantize, IsWithinHalfAStep) {
  for (const char* text : kSchemes) {
    for (const int64_t k : {1, 16, 50, 131}) {
      const Tensor weight = Random({9, k}, static_cast<unsigned>(k));
      ExpectWithinHalfAStep(weight, *Quantized(weight, text));
    }
  }
}

TEST(Quantize, RepresentableWeightsComeBackExactly) {
  for (const char* text : kSchemes) {
    // Codes under scales that are powers of two; the ends occur in every group, so that its scale is known.
    const QuantScheme scheme = Scheme(text);
    const int64_t k = 70, size = scheme.group_size == -1 ? k : scheme.group_size;
    const int least = scheme.CodeDType() == DType::kInt8 ? -128 : scheme.symmetric ? -scheme.Midpoint() : -3;
    std::mt19937 generator(2);
    std::vector<float> weights;
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        const float scale = std::ldexp(1.0f, static_cast<int>((row + i / size) % 4));
        float value;
        if (scheme.codebook == ir::Codebook::kInteger) {
          const int count = 1 << scheme.bits;
          const int code = i % size == 0                 ? count - 1
                           : i % size == 1 || i + 1 == k ? 0
                                                         : static_cast<int>(generator() % static_cast<unsigned>(count));
          value = static_cast<float>(least + code);
        } else {
          const std::vector<Level> levels = LevelsOf(scheme);
          value = static_cast<float>((i % size == 0 ? levels.back() : levels[generator() % levels.size()]).value);
        }
        // One group of nvfp4 has the greatest scale, so that the global one is known: 2^-5.
        const float global = !scheme.HasGlobalScale() ? 1 : row == 0 && i < size ? 448 * 0x1p-5f / scale : 0x1p-5f;
        weights.push_back(scale * value * global);
      }
    }
    const Tensor weight = Floats({5, k}, weights);
    for (const ScaleSearch scales : {ScaleSearch::kMinMax, ScaleSearch::kMse}) {
      EXPECT_EQ(SquaredError(weight, *Quantized(weight, text, scales)), 0) << text;
    }
  }
}

TEST(Quantize, LeastSquaresIsNoWorseThanCovering) {
  bool better = false;
  for (const char* text : kSchemes) {
    Tensor weight = Random({8, 96}, 5);
    const double covering = SquaredError(weight, *Quantized(weight, text));
    const double searched = SquaredError(weight, *Quantized(weight, text, ScaleSearch::kMse));
    EXPECT_LE(searched, covering) << text;
    better = better || searched < 0.9 * covering;
  }
  EXPECT_TRUE(better);
}

TEST(Quantize, ErrorsOfImportantInputsCountMore) {
  const Tensor weight = Random({16, 64}, 7);
  std::vector<float> importance(64, 1e-3f);
  for (size_t k = 0; k < 64; k += 8) importance[k] = 100;
  const std::vector<float> wanted = testing::ToFloats(weight);
  for (const char* text : kSchemes) {
    const auto error = [&](const QLinearWoQ& layer) {
      const std::vector<double> found = Decode(layer).weights;
      double sum = 0;
      for (size_t i = 0; i < found.size(); ++i) sum += importance[i % 64] * std::pow(wanted[i] - found[i], 2);
      return sum;
    };
    const auto linear = LinearOf(weight);
    QuantizeOptions options{.scheme = Scheme(text), .scales = ScaleSearch::kMse};
    const auto alike = Value(QLinearWoQ::Quantize(*linear, options));
    options.importance = Floats({64}, importance);
    const auto weighted = Value(QLinearWoQ::Quantize(*linear, options));
    const bool coarse = std::string(text).starts_with("mx") || std::string(text).ends_with("e8m0");
    EXPECT_LT(error(*weighted), error(*alike) * (coarse ? 1.01 : 0.95)) << text;
    // Inputs that count nothing leave scales that are as good as any.
    options.importance = Value(Tensor::Zeros(Shape{64}, DType::kFloat32));
    for (const double scale : Decode(*Value(QLinearWoQ::Quantize(*linear, options))).scales) {
      EXPECT_TRUE(std::isfinite(scale) && scale > 0);
    }
  }
}

TEST(Quantize, UnusualGroupsHaveFiniteScales) {  // C032
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  for (const char* text : kSchemes) {
    for (const ScaleSearch scales : {ScaleSearch::kMinMax, ScaleSearch::kMse}) {
      std::vector<float> weights(8 * 64);
      for (size_t i = 0; i < 64; ++i) {
        weights[64 + i] = 1e-30f;
        weights[128 + i] = kTiny * static_cast<float>(i);
        weights[192 + i] = 0.3f;
        weights[256 + i] = -0.3f;
        weights[320 + i] = i % 2 == 0 ? 1.0f : -0.5f;
        weights[384 + i] = i == 40 ? 100.0f : 1e-6f;
        weights[448 + i] = i < 32 ? 0.0f : -0.0f;
      }
      const Tensor weight = Floats({8, 64}, weights);
      const auto layer = Quantized(weight, text, scales);
      if (scales == ScaleSearch::kMinMax) ExpectWithinHalfAStep(weight, *layer);
      const Decoded decoded = Decode(*layer);
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(decoded.weights[i], 0);
        EXPECT_EQ(decoded.weights[448 + i], 0);
      }
      for (const double scale : decoded.scales) EXPECT_TRUE(std::isfinite(scale) && scale > 0) << text;
    }
  }
}

TEST(Quantize, ForwardReadsTheDecodedWeight) {
  const auto linear = MakeLinear(50, 7, 3);
  for (const char* text : kSchemes) {
    const auto layer = Value(QLinearWoQ::Quantize(*linear, {.scheme = Scheme(text)}));
    const std::vector<double> weights = Decode(*layer).weights;
    const std::vector<float> bias = testing::ToFloats(Value(linear->Parameter("bias")));
    std::vector<float> unit(50 * 50);
    for (size_t k = 0; k < 50; ++k) unit[k * 51] = 1;
    const std::vector<float> y = testing::ToFloats(Value(layer->Forward(Floats({50, 50}, unit))));
    for (size_t k = 0; k < 50; ++k) {
      for (size_t n = 0; n < 7; ++n) {
        EXPECT_NEAR(y[k * 7 + n], weights[n * 50 + k] + bias[n], 2e-6) << text;
      }
    }
  }
}

TEST(Quantize, KeepsWhatTheLinearIs) {
  const auto linear =
      MakeLinear(24, 8, 3, {.activation = Activation::kRelu, .residency = Residency::kPerCall, .name = "up"});
  const auto kept = Value(QLinearWoQ::Quantize(*linear, {.scheme = Scheme("int8")}));
  EXPECT_EQ(kept->name(), "up");
  EXPECT_EQ(kept->activation(), Activation::kRelu);
  EXPECT_EQ(kept->residency(), Residency::kPerCall);
  EXPECT_EQ(kept->compute(), Compute::kFloat);
  EXPECT_TRUE(SameBits(Value(kept->Parameter("bias")), Value(linear->Parameter("bias"))));
  EXPECT_NE(Value(kept->Parameter("bias")).storage(), Value(linear->Parameter("bias")).storage());
  const auto other = Value(QLinearWoQ::Quantize(
      *linear,
      {.scheme = Scheme("int8"), .compute = Compute::kInt8, .residency = Residency::kPacked, .name = "other"}));
  EXPECT_EQ(other->name(), "other");
  EXPECT_EQ(other->residency(), Residency::kPacked);
  EXPECT_EQ(other->compute(), Compute::kInt8);
}

TEST(Quantize, ReadsPackedFusedAndNarrowLinears) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const auto make = [&](unsigned seed) { return MakeLinear(40, 9, seed, {.dtype = dtype}); };
    const auto quantize = [](const Linear& linear) {
      return Value(QLinearWoQ::Quantize(linear, {.scheme = Scheme("int4_g16_asym")}));
    };
    const auto wanted = quantize(*make(3));
    const auto packed = make(3);
    ASSERT_TRUE(packed->Forward(Random({2, 40}, 1)).ok());
    const std::vector<std::shared_ptr<Layer>> parts = {make(4), make(3)};
    const auto group = Value(FuseLinears(parts));
    for (const auto& layer : {quantize(*packed), quantize(dynamic_cast<const Linear&>(*parts[1]))}) {
      for (const char* name : {"weight", "weight_scale", "weight_zero_point", "bias"}) {
        EXPECT_TRUE(SameBits(Value(layer->Parameter(name)), Value(wanted->Parameter(name)))) << name;
      }
    }
    EXPECT_TRUE(group->fused());
  }
}

TEST(Quantize, ThreadsChangeNothing) {
  const Tensor weight = Random({37, 130}, 9);
  const int before = GetNumThreads();
  ASSERT_TRUE(SetNumThreads(1).ok());
  const auto alone = Quantized(weight, "int4_g32_asym", ScaleSearch::kMse);
  ASSERT_TRUE(SetNumThreads(4).ok());
  const auto together = Quantized(weight, "int4_g32_asym", ScaleSearch::kMse);
  ASSERT_TRUE(SetNumThreads(before).ok());
  for (const char* name : {"weight", "weight_scale", "weight_zero_point"}) {
    EXPECT_TRUE(SameBits(Value(alone->Parameter(name)), Value(together->Parameter(name))));
  }
}

TEST(Quantize, EmptyLinearsMakeEmptyLayers) {
  for (const char* text : kSchemes) {
    for (const Shape& shape : {Shape{0, 16}, Shape{4, 0}, Shape{0, 0}}) {
      const auto layer = Quantized(Value(Tensor::Zeros(shape, DType::kFloat32)), text);
      EXPECT_EQ(layer->state(), LayerState::kBound) << text;
    }
  }
}

TEST(Quantize, RefusesByName) {
  const auto refusal = [](const Tensor& weight, const char* scheme) {
    const auto linear = LinearOf(weight, {.name = "up"});
    const absl::Status status = QLinearWoQ::Quantize(*linear, {.scheme = Scheme(scheme)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("'up'"));
    return std::string(status.message());
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> weights(3 * 20, 1.0f);
    weights[27] = bad;
    weights[53] = bad;
    EXPECT_THAT(refusal(Floats({3, 20}, weights), "int4"), HasSubstr("[1, 7]"));
  }
  std::vector<float> weights(3 * 20, 1.0f);
  weights[25] = 1e9f;
  EXPECT_THAT(refusal(Floats({3, 20}, weights), "int4_g4"), HasSubstr("row 1, group 1"));
  ExpectWithinHalfAStep(Floats({3, 20}, weights), *Quantized(Floats({3, 20}, weights), "int4_g4_bf16"));

  for (const Tensor& importance : {Floats({3}, {1, 1, 1}), Floats({1, 4}, {1, 1, 1, 1}), Floats({4}, {1, -1, 1, 1}),
                                   Floats({4}, {1, 1, std::numeric_limits<float>::infinity(), 1}),
                                   Value(Tensor::Zeros(Shape{4}, DType::kInt32))}) {
    const absl::Status status =
        QLinearWoQ::Quantize(*MakeLinear(4, 4, 1),
                             {.scheme = Scheme("int8"), .scales = ScaleSearch::kMse, .importance = importance})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("importance"));
  }
  EXPECT_EQ(
      QLinearWoQ::Quantize(*MakeLinear(4, 4, 1), {.scheme = Scheme("int8"), .importance = Floats({4}, {1, 1, 1, 1})})
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);

  const auto unbound = Value(Linear::Create(4, 4, {.name = "empty"}));
  EXPECT_THAT(QLinearWoQ::Quantize(*unbound, {.scheme = Scheme("int8")}).status().message(), HasSubstr("'empty'"));
  const auto group = Value(FuseLinears(std::vector<std::shared_ptr<Layer>>{MakeLinear(4, 4, 1), MakeLinear(4, 4, 2)}));
  EXPECT_THAT(QLinearWoQ::Quantize(*group, {.scheme = Scheme("int8")}).status().message(), HasSubstr("parts"));
  EXPECT_EQ(QLinearWoQ::Quantize(*MakeLinear(4, 4, 1), {.scheme = {.bits = 3}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace clikart
