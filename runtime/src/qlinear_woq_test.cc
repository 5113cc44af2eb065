#include <algorithm>
#include <functional>

#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "code_store.h"
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

using Layers = std::vector<std::shared_ptr<Layer>>;

Tensor Ints(const Shape& shape, const std::vector<int32_t>& values) {
  return Value(Tensor::FromVector<int32_t>(shape, DType::kInt32, values));
}

Tensor Octets(const Shape& shape, const std::vector<uint8_t>& values) {
  return Value(Tensor::FromVector<uint8_t>(shape, DType::kUInt8, values));
}

QuantScheme Scheme(const std::string& text) { return Value(QuantScheme::Parse(text)); }

// Tensors of the right form for every parameter that the layer must have.
StateDict RandomState(const QLinearWoQ& layer, unsigned seed) {
  StateDict state;
  for (const ParameterSpec& spec : layer.Parameters()) {
    if (!spec.required) continue;
    if (spec.name == "weight_scale" && spec.dtype == DType::kUInt8) {
      state.emplace_back(
          spec.name, Value(Tensor::FromVector<uint8_t>(
                         spec.shape, spec.dtype,
                         std::vector<uint8_t>(static_cast<size_t>(Value(Tensor::Empty(spec.shape, spec.dtype)).numel()),
                                              layer.scheme().HasGlobalScale() ? 0x3c : 126))));
    } else if (ir::IsFloat(spec.dtype)) {
      state.emplace_back(spec.name, Random(spec.shape, seed, spec.dtype));
    } else if (spec.name == "weight_zero_point") {
      state.emplace_back(spec.name, Bytes(spec.shape, seed, spec.dtype, 1u << layer.scheme().bits));
    } else {
      // Codes of fp8 that are no number are left out.
      state.emplace_back(
          spec.name, Bytes(spec.shape, seed, spec.dtype, layer.scheme().ToString().starts_with("fp8") ? 0x78 : 256));
    }
  }
  return state;
}

std::shared_ptr<QLinearWoQ> Make(int64_t in, int64_t out, unsigned seed, const QLinearWoQOptions& options) {
  std::shared_ptr<QLinearWoQ> layer = Value(QLinearWoQ::Create(in, out, options));
  const absl::Status status = layer->Bind(RandomState(*layer, seed));
  EXPECT_TRUE(status.ok()) << status;
  return layer;
}

constexpr const char* kSchemes[] = {"int4_g16_asym", "int4_g16",     "int8",         "int8_asym", "int8_g32_bf16",
                                    "nf4_g16",       "mxfp4",        "nvfp4",        "fp8_e4m3",  "fp8_e5m2_f32",
                                    "int2_g16",      "int4_g16_min", "int8_min_f32", "int4"};

// More rows than the runtime prepares at once.
TEST(QLinearWoQ, ManyRowsAreThoseOfManyForwards) {
  constexpr int64_t kRows = 250'000, kEach = 12'500;
  const Tensor x = Random({kRows, 32}, 8);
  for (const QLinearWoQOptions& options :
       {QLinearWoQOptions{.scheme = Scheme("int4_g16_asym"), .compute = Compute::kInt8},
        QLinearWoQOptions{.scheme = Scheme("int4_g16_min")}}) {
    const auto layer = Make(32, 3, 3, options);
    const Tensor y = Value(layer->Forward(x));
    for (int64_t row = 0; row < kRows; row += kEach) {
      const Tensor some = Value(layer->Forward(Value(x.Slice(0, row, kEach))));
      ASSERT_TRUE(SameBits(Value(y.Slice(0, row, kEach)), some)) << row;
    }
  }
}

TEST(QLinearWoQ, StateDictsOfEverySchemeRoundTrip) {
  for (const char* text : kSchemes) {
    const QLinearWoQOptions options{.scheme = Scheme(text)};
    const auto layer = Make(40, 6, 3, options);
    const Tensor x = Random({3, 40}, 8);
    const StateDict before = Value(layer->GetStateDict());
    StateDict copies;
    for (const auto& [name, tensor] : before) copies.emplace_back(name, Value(tensor.Clone()));
    const Tensor y = Value(layer->Forward(x));
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& [name, tensor] = before[i];
      const bool packed = name != "bias" && name != "weight_global_scale";
      EXPECT_EQ(tensor.has_storage(), !packed) << text << " " << name;
      EXPECT_TRUE(SameBits(Value(layer->Parameter(name)), copies[i].second)) << text << " " << name;
    }
    const auto again = Value(QLinearWoQ::Create(40, 6, options));
    ASSERT_TRUE(again->Bind(Value(layer->GetStateDict())).ok()) << text;
    EXPECT_TRUE(SameBits(Value(again->Forward(x)), y)) << text;
    for (float value : ToFloats(y)) EXPECT_TRUE(std::isfinite(value)) << text;
  }
}

// Whatever the bits behind a row's last code are, in every order of the inputs and in groups of any size.
TEST(QLinearWoQ, WeightsReadBackBitForBit) {
  const std::vector<std::vector<int32_t>> orders = {
      {}, {0, 0, 0, 0, 1, 1, 1, 1, 2}, {2, 1, 0, 1, 0, 1, 0, 1, 0}, {0, 2, 2, 0, 2, 2, 1, 2, 2}};
  for (const char* text : {"int4_g4_asym", "int2_g4", "int8_g4", "int4_g4_min"}) {
    for (const Compute compute : {Compute::kFloat, Compute::kInt8}) {
      for (const auto& order : orders) {
        std::vector<std::shared_ptr<Layer>> layers;
        std::vector<StateDict> states;
        for (unsigned seed : {3u, 4u}) {
          const auto layer = Value(QLinearWoQ::Create(9, 21, {.scheme = Scheme(text), .compute = compute}));
          StateDict state = RandomState(*layer, seed);
          if (!order.empty()) state.emplace_back("weight_g_idx", Ints({9}, order));
          ASSERT_TRUE(layer->Bind(state).ok());
          states.push_back({});
          for (const auto& [name, tensor] : state) states.back().emplace_back(name, Value(tensor.Clone()));
          layers.push_back(layer);
        }
        const auto group = Value(FuseLinears(layers));
        EXPECT_TRUE(group->fused());
        for (size_t i = 0; i < layers.size(); ++i) {
          for (const auto& [name, tensor] : states[i]) {
            EXPECT_TRUE(SameBits(Value(layers[i]->Parameter(name)), tensor)) << text << " " << name;
          }
        }
      }
    }
  }
}

// Inputs are put into an order once for all the parts that have it: q, k and v of one checkpoint.
TEST(CodeStore, EqualOrdersShareATable) {
  ir::KernelSpec spec;
  spec.contraction = ir::Contraction::kWeightOnly;
  spec.n = 4;
  spec.k = 4;
  spec.scheme = Scheme("int8_g2");
  spec.interleave = 1;
  spec.order = ir::InputOrder::kSorted;
  const auto part = [&](const std::vector<int32_t>& g_idx) {
    CodePart one;
    one.rows.rows = 1;
    one.order = GroupOrderOf(*spec.scheme, spec.k, reinterpret_cast<const std::byte*>(g_idx.data()));
    return one;
  };
  const CodeStore store(spec, {part({1, 0, 1, 0}), part({0, 1, 1, 0}), part({1, 0, 1, 0}), part({0, 0, 1, 1})});
  const auto orders = store.args().orders;
  EXPECT_EQ(orders[0].columns, orders[2].columns);
  EXPECT_NE(orders[0].columns, orders[1].columns);
  EXPECT_EQ(std::vector<int32_t>(orders[2].columns, orders[2].columns + 4), (std::vector<int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(std::vector<int32_t>(orders[3].columns, orders[3].columns + 4), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(QLinearWoQGroup, OrdersThatDoNotFitServeSideBySide) {
  const auto make = [](unsigned seed, const std::vector<int32_t>& order) {
    const auto layer = Value(QLinearWoQ::Create(6, 21, {.scheme = Scheme("int4_g2")}));
    StateDict state = RandomState(*layer, seed);
    state.emplace_back("weight_g_idx", Ints({6}, order));
    EXPECT_TRUE(layer->Bind(state).ok());
    return layer;
  };
  const std::vector<int32_t> natural = {0, 0, 1, 1, 2, 2}, sorted = {2, 1, 0, 1, 0, 2}, other = {0, 2, 1, 1, 2, 0},
                             uneven = {0, 0, 0, 1, 2, 2}, others = {0, 0, 1, 1, 1, 2};
  struct Case {
    std::vector<int32_t> first, second;
    std::string reason;
  };
  for (const Case& c : {Case{natural, natural, ""}, Case{sorted, other, ""}, Case{uneven, uneven, ""},
                        Case{natural, sorted, "activation_order"}, Case{sorted, uneven, "activation_order"},
                        Case{uneven, others, "group_sizes"}}) {
    const auto group = Value(FuseLinears(Layers{make(3, c.first), make(4, c.second)}));
    EXPECT_EQ(group->fused(), c.reason.empty()) << c.reason;
    EXPECT_THAT(group->Explain(), HasSubstr(c.reason));
    const Tensor x = Random({3, 6}, 8);
    const std::vector<Tensor> apart = {Value(make(3, c.first)->Forward(x)), Value(make(4, c.second)->Forward(x))};
    EXPECT_TRUE(SameBits(Value(group->Forward(x)), Value(Concat(apart))));
  }
}

TEST(QLinearWoQ, OneHotInputsReadTheWeight) {  // C036, C027
  for (int64_t k : {16, 17}) {
    for (uint8_t fill : {uint8_t{0}, uint8_t{15}}) {
      QuantScheme scheme = Scheme("int4_g8");
      const auto layer = Value(QLinearWoQ::Create(k, 2, {.bias = false, .scheme = scheme}));
      const int64_t row = (k + 1) / 2, groups = (k + 7) / 8;
      std::vector<uint8_t> codes;
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t i = 0; i < row; ++i) {
          const auto code = [&](int64_t at) { return at < k ? static_cast<uint8_t>((at + n) % 16) : fill; };
          codes.push_back(static_cast<uint8_t>(code(2 * i) | code(2 * i + 1) << 4));
        }
      }
      std::vector<float> scales;
      for (int64_t i = 0; i < 2 * groups; ++i) scales.push_back(static_cast<float>(1 << i));
      ASSERT_TRUE(layer
                      ->Bind({{"weight", Octets({2, row}, codes)},
                              {"weight_scale", Floats({2, groups}, scales, DType::kFloat16)}})
                      .ok());
      for (int64_t at = 0; at < k; ++at) {
        std::vector<float> x(static_cast<size_t>(k));
        x[static_cast<size_t>(at)] = 1;
        const std::vector<float> y = ToFloats(Value(layer->Forward(Floats({1, k}, x))));
        for (int64_t n = 0; n < 2; ++n) {
          const float scale = scales[static_cast<size_t>(n * groups + at / 8)];
          EXPECT_EQ(y[static_cast<size_t>(n)], scale * static_cast<float>((at + n) % 16 - 8));
        }
      }
    }
  }
}

TEST(QLinearWoQ, ActivationOrderIsCheckedAndServed) {  // C037
  const auto layer = Value(QLinearWoQ::Create(8, 1, {.bias = false, .scheme = Scheme("int8_g2_asym")}));
  StateDict state = {{"weight", Octets({1, 8}, std::vector<uint8_t>(8, 1))},
                     {"weight_scale", Floats({1, 4}, {1, 10, 100, 1000}, DType::kFloat16)},
                     {"weight_zero_point", Octets({1, 4}, {0, 0, 0, 0})},
                     {"weight_g_idx", Ints({8}, {3, 0, 1, 2, 0, 3, 2, 1})}};
  ASSERT_TRUE(layer->Bind(state).ok());
  for (size_t k = 0; k < 8; ++k) {
    std::vector<float> x(8);
    x[k] = 1;
    constexpr float kExpected[] = {1000, 1, 10, 100, 1, 1000, 100, 10};
    EXPECT_EQ(ToFloats(Value(layer->Forward(Floats({1, 8}, x))))[0], kExpected[k]);
  }
  for (int32_t bad : {-1, 4}) {
    state[3].second = Ints({8}, {3, 0, 1, 2, 0, bad, 2, 1});
    EXPECT_THAT(layer->Bind(state).message(), HasSubstr("weight_g_idx"));
  }
  // A whole new checkpoint without the optional index does away with it.
  state.pop_back();
  ASSERT_TRUE(layer->Bind(state).ok());
  EXPECT_EQ(layer->Parameter("weight_g_idx").status().code(), absl::StatusCode::kNotFound);
}

TEST(QLinearWoQ, BuffersThatDoNotFitAreRefused) {  // C038, C031
  const auto layer = Value(QLinearWoQ::Create(256, 8, {.bias = false, .scheme = Scheme("int4_asym")}));
  const StateDict good = RandomState(*layer, 1);
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    StateDict state = good;
    for (auto& [key, value] : state) {
      if (key == name) value = tensor;
    }
    return layer->Bind(state);
  };
  for (const Shape& shape : {Shape{8}, Shape{1, 8}, Shape{8, 3}}) {
    EXPECT_THAT(with("weight_scale", Random(shape, 1, DType::kFloat16)).message(), HasSubstr("[8, 1]"));
  }
  EXPECT_FALSE(with("weight", Bytes({8, 127}, 1)).ok());
  EXPECT_FALSE(with("weight_zero_point", Bytes({7, 1}, 1, DType::kUInt8, 16)).ok());
  EXPECT_FALSE(with("weight", Ints({8, 128}, std::vector<int32_t>(1024, 1))).ok());
  EXPECT_THAT(with("weight_zero_point", Octets({8, 1}, {0, 1, 15, 16, 0, 0, 0, 0})).message(), HasSubstr("found 16"));
  EXPECT_EQ(layer->state(), LayerState::kUnbound);
  EXPECT_TRUE(layer->Bind(good).ok());
}

TEST(QLinearWoQ, EveryBatchSizeResidencyAndComputeGivesTheRowsBits) {
  for (Compute compute : {Compute::kFloat, Compute::kInt8}) {
    const auto packed = Make(40, 9, 3, {.scheme = Scheme("int4_g16_asym"), .compute = compute});
    const auto per_call =
        Make(40, 9, 3, {.scheme = Scheme("int4_g16_asym"), .residency = Residency::kPerCall, .compute = compute});
    const Tensor x = Random({7, 40}, 8);
    const Tensor y = Value(packed->Forward(x));
    EXPECT_TRUE(SameBits(Value(per_call->Forward(x)), y));
    for (int64_t row = 0; row < 7; ++row) {
      EXPECT_TRUE(SameBits(Value(packed->Forward(Value(x.Slice(0, row, 1)))), Value(y.Slice(0, row, 1))));
    }
  }
}

TEST(QLinearWoQGroup, EqualsItsPartsBitForBit) {
  for (const char* text : kSchemes) {
    for (DType x_dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto make = [&] {
        const QLinearWoQOptions options{.scheme = Scheme(text)};
        return Layers{Make(40, 9, 3, options), Make(40, 5, 4, options), Make(40, 16, 5, options)};
      };
      const Layers parts = make(), apart = make();
      const Tensor held = Value(parts[0]->Parameter("weight"));
      const auto group = Value(FuseLinears(parts, {.name = "qkv"}));
      EXPECT_TRUE(group->fused());
      EXPECT_FALSE(held.has_storage());
      EXPECT_TRUE(SameBits(Value(parts[2]->Parameter("weight")), Value(apart[2]->Parameter("weight"))));
      const Tensor x = Random({5, 40}, 8, x_dtype);
      std::vector<Tensor> outputs;
      for (const auto& layer : apart) outputs.push_back(Value(layer->Forward(x)));
      const DispatchCounter counter;
      EXPECT_TRUE(SameBits(Value(group->Forward(x)), Value(Concat(outputs)))) << text;
      EXPECT_EQ(counter.total(), 1);
      ASSERT_TRUE(parts[0]->Bind(Value(parts[0]->GetStateDict())).ok());
      EXPECT_TRUE(SameBits(Value(group->Forward(x)), Value(Concat(outputs)))) << text;
    }
  }
}

TEST(QLinearWoQGroup, GatedFusedAndDissolvedAgree) {
  const QLinearWoQOptions options{.bias = false, .scheme = Scheme("int4_g16_asym")};
  const Layers parts = {Make(40, 10, 3, options), Make(40, 10, 4, options)};
  const auto group = Value(FuseLinears(parts, {.activation = Activation::kSwiglu}));
  EXPECT_TRUE(group->fused());
  const Tensor x = Random({5, 40}, 8, DType::kFloat16);
  const Tensor y = Value(group->Forward(x));
  EXPECT_EQ(y.shape(), Shape({5, 10}));
  ASSERT_TRUE(parts[1]->Bind(Value(parts[1]->GetStateDict())).ok());
  EXPECT_FALSE(group->fused());
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), y));
}

TEST(QLinearWoQGroup, MixedPartsServeSideBySide) {
  const QLinearWoQOptions four{.scheme = Scheme("int4_g16_asym")}, eight{.scheme = Scheme("int8")};
  const QLinearWoQOptions integers{.scheme = Scheme("int4_g16_asym"), .compute = Compute::kInt8};
  struct Case {
    std::function<std::shared_ptr<Layer>()> second;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {[&] { return Make(40, 5, 4, eight); }, "quantization_schemes"},
      {[&] { return Make(40, 5, 4, integers); }, "compute_kinds"},
      {[&] { return testing::MakeLinear(40, 5, 4); }, "mixed_layer_kinds"},
  };
  for (const Case& c : cases) {
    const auto group = Value(FuseLinears(Layers{Make(40, 9, 3, four), c.second()}));
    EXPECT_FALSE(group->fused());
    EXPECT_THAT(group->Explain(), HasSubstr(c.reason));
    const Tensor x = Random({3, 40}, 8);
    const DispatchCounter counter;
    const Tensor y = Value(group->Forward(x));
    EXPECT_EQ(counter.total(), 2);
    const std::vector<Tensor> apart = {Value(Make(40, 9, 3, four)->Forward(x)), Value(c.second()->Forward(x))};
    EXPECT_TRUE(SameBits(y, Value(Concat(apart))));
  }
}

}  // namespace
}  // namespace clikart
