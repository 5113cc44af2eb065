// QLinear: what it computes, and the life of its weight.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "clikart/nn.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using testing::Bytes;
using testing::Floats;
using ::testing::HasSubstr;
using testing::Random;
using testing::SameBits;
using testing::ToFloats;
using testing::Value;

Tensor Ints(const Shape& shape, const std::vector<int32_t>& values) {
  return Value(Tensor::FromVector<int32_t>(shape, DType::kInt32, values));
}

TEST(QLinear, FollowsTheIntegerFormula) {
  for (DType x_dtype : {DType::kInt8, DType::kUInt8}) {
    for (bool requantize : {false, true}) {
      const auto layer = Value(QLinear::Create(12, 5, {.activation = Activation::kRelu, .name = "q"}));
      const Tensor weight = Bytes({5, 12}, 1, DType::kInt8), scales = Floats({5}, {.5f, .25f, 1, .125f, 2});
      const Tensor bias = Floats({5}, {1, -2, 3, -4, 5}), x = Bytes({3, 12}, 2, x_dtype);
      StateDict state = {{"weight", weight},
                         {"weight_scale", scales},
                         {"input_scale", Floats({}, {0.0625f})},
                         {"input_zero_point", Ints({1}, {7})},
                         {"bias", bias}};
      if (requantize) {
        state.emplace_back("output_scale", Floats({1}, {16.0f}));
        state.emplace_back("output_zero_point", Ints({1}, {3}));
      }
      ASSERT_TRUE(layer->Bind(state).ok());
      const Tensor y = Value(layer->Forward(x));
      EXPECT_EQ(y.dtype(), requantize ? x_dtype : DType::kFloat32);
      const Tensor::Pinned px = Value(x.Pin()), pw = Value(weight.Pin()), py = Value(y.Pin());
      for (size_t m = 0; m < 3; ++m) {
        for (size_t n = 0; n < 5; ++n) {
          int32_t sum = 0;
          for (size_t k = 0; k < 12; ++k) {
            const std::byte code = px.data[m * 12 + k];
            const int32_t value = x_dtype == DType::kInt8 ? static_cast<int8_t>(code) : static_cast<uint8_t>(code);
            sum += (value - 7) * static_cast<int8_t>(pw.data[n * 12 + k]);
          }
          float result = std::fma(static_cast<float>(sum), 0.0625f * ToFloats(scales)[n], ToFloats(bias)[n]);
          result = result > 0 ? result : 0;
          if (!requantize) {
            float got;
            std::memcpy(&got, py.data + (m * 5 + n) * sizeof got, sizeof got);
            EXPECT_EQ(got, result);
            continue;
          }
          const int32_t low = x_dtype == DType::kInt8 ? -128 : 0;
          const int32_t expected = std::clamp(static_cast<int32_t>(std::nearbyint(result / 16.0f)) + 3, low, low + 255);
          const std::byte got = py.data[m * 5 + n];
          EXPECT_EQ(x_dtype == DType::kInt8 ? static_cast<int8_t>(got) : static_cast<uint8_t>(got), expected);
        }
      }
      EXPECT_EQ(layer->Forward(Random({3, 12}, 1)).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(QLinear, ChecksItsZeroPoints) {
  const auto layer = Value(QLinear::Create(2, 1, {.bias = false}));
  StateDict state = {{"weight", Bytes({1, 2}, 1, DType::kInt8)},
                     {"weight_scale", Floats({1}, {1})},
                     {"input_scale", Floats({1}, {1})},
                     {"input_zero_point", Ints({1}, {300})}};
  EXPECT_THAT(layer->Bind(state).message(), HasSubstr("input_zero_point: found 300"));
  state[3].second = Bytes({1}, 1);
  EXPECT_TRUE(layer->Bind(state).ok());
  state.emplace_back("output_zero_point", Ints({1}, {3}));
  EXPECT_THAT(layer->Bind(state).message(), HasSubstr("output_scale"));
}

struct Served {
  std::shared_ptr<QLinear> layer;
  Tensor weight;
};

Served Serve(int64_t in, int64_t out, const QLinearOptions& options) {
  Served served{Value(QLinear::Create(in, out, options)), Bytes({out, in}, 1, DType::kInt8)};
  std::vector<float> scales(static_cast<size_t>(out));
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(i + 1);
  StateDict state = {{"weight", served.weight},
                     {"weight_scale", Floats({out}, scales)},
                     {"input_scale", Floats({1}, {0.5f})},
                     {"input_zero_point", Ints({1}, {-3})}};
  if (options.bias) state.emplace_back("bias", Random({out}, 2));
  EXPECT_TRUE(served.layer->Bind(state).ok());
  return served;
}

TEST(QLinear, ThePackReplacesTheWeightAndReadsBack) {
  for (const Activation activation : {Activation::kNone, Activation::kSwiglu}) {
    for (const auto& [in, out] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {4, 16}, {37, 38}, {130, 66}, {0, 4}}) {
      const auto [layer, weight] = Serve(in, out, {.bias = activation == Activation::kNone, .activation = activation});
      const Tensor held = Value(layer->Parameter("weight"));
      const Tensor x = Bytes({3, in}, 4, DType::kInt8);
      const Tensor y = Value(layer->Forward(x));
      EXPECT_FALSE(held.has_storage());
      const Tensor back = Value(layer->Parameter("weight"));
      EXPECT_TRUE(SameBits(back, weight)) << in << " -> " << out;
      // What was read back makes the same layer again.
      ASSERT_TRUE(layer->Bind(Value(layer->GetStateDict())).ok());
      EXPECT_TRUE(SameBits(Value(layer->Forward(x)), y));
    }
  }
}

TEST(QLinear, HoldsLittleMoreThanTheCodes) {
  const auto layer = Serve(256, 64, {}).layer;
  Value(layer->Forward(Bytes({1, 256}, 4, DType::kInt8)));
  EXPECT_THAT(layer->Explain(), HasSubstr("weights: 16384 bytes"));
}

TEST(QLinear, GatesHalvesOfItsRows) {
  const auto [gated, weight] = Serve(20, 12, {.bias = false, .activation = Activation::kReglu});
  const auto plain = Serve(20, 12, {.bias = false}).layer;
  const Tensor x = Bytes({5, 20}, 3);
  const std::vector<float> sums = ToFloats(Value(plain->Forward(x))), y = ToFloats(Value(gated->Forward(x)));
  for (size_t row = 0; row < 5; ++row) {
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(y[row * 6 + i], std::max(sums[row * 12 + i], 0.0f) * sums[row * 12 + 6 + i]) << row << ", " << i;
    }
  }
}

TEST(QLinear, BothInputTypesShareOnePack) {
  const auto layer = Serve(9, 5, {}).layer;
  const Tensor x = Bytes({2, 9}, 3, DType::kUInt8, 128);  // the same numbers in either type
  std::vector<int8_t> codes(18);
  std::memcpy(codes.data(), Value(x.Pin()).data, codes.size());
  const Tensor same = Value(Tensor::FromVector<int8_t>(Shape{2, 9}, DType::kInt8, codes));
  EXPECT_TRUE(SameBits(Value(layer->Forward(x)), Value(layer->Forward(same))));
}

TEST(QLinear, TakesScalesAtAnyAddressAndOfAnyFloatType) {
  const auto layer = Value(QLinear::Create(2, 2, {.bias = false}));
  ASSERT_TRUE(layer
                  ->Bind({{"weight", Bytes({2, 2}, 1, DType::kInt8)},
                          {"weight_scale", Floats({2}, {0.5f, 2.0f}, DType::kFloat16)},
                          {"input_scale", Floats({1}, {1}, DType::kBFloat16)},
                          {"input_zero_point", Ints({1}, {0})}})
                  .ok());
  EXPECT_TRUE(layer->Forward(Bytes({1, 2}, 3)).ok());
}

}  // namespace
}  // namespace clikart
