#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using ::testing::ElementsAre;
using testing::Floats;
using ::testing::HasSubstr;
using testing::MakeLinear;
using testing::Random;
using testing::SameBits;
using testing::Value;

using Layers = std::vector<std::shared_ptr<Layer>>;

// The outputs of fresh layers of the same weights, concatenated.
Tensor Apart(const Layers& layers, const Tensor& x) {
  std::vector<Tensor> outputs;
  for (const auto& layer : layers) outputs.push_back(Value(layer->Forward(x)));
  return Value(Concat(outputs));
}

Layers Three(LinearOptions options, Residency second) {
  LinearOptions other = options;
  other.residency = second;
  return {MakeLinear(20, 16, 1, options), MakeLinear(20, 5, 2, other), MakeLinear(20, 33, 3, options)};
}

TEST(LinearGroup, EqualsItsPartsBitForBit) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu}) {
      for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
        for (int threads : {1, 2}) {
          ASSERT_TRUE(SetNumThreads(threads).ok());
          const LinearOptions options{.dtype = dtype, .activation = activation, .residency = residency};
          const Layers parts = Three(options, residency);
          const auto group = Value(FuseLinears(parts));
          EXPECT_TRUE(group->fused());
          EXPECT_EQ(group->residency(), residency);
          const Layers apart = Three(options, residency);
          for (DType x_dtype : {DType::kFloat32, dtype}) {
            for (int64_t m : {1, 2, 7, 70}) {
              const Tensor x = Random({m, 20}, 9, x_dtype);
              const DispatchCounter counter;
              const Tensor y = Value(group->Forward(x));
              EXPECT_EQ(counter.total(), 1);
              EXPECT_TRUE(SameBits(y, Apart(apart, x)));
            }
          }
        }
      }
    }
  }
  ASSERT_TRUE(SetNumThreads(0).ok());
}

TEST(LinearGroup, PartsKeepTheirNamesViewsAndValues) {
  for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
    const Layers parts = Three({.residency = residency}, residency);
    const Layers twins = Three({}, Residency::kPacked);
    const Tensor held = Value(parts[1]->Parameter("weight"));
    const auto group = Value(FuseLinears(parts, {.name = "qkv"}));
    EXPECT_FALSE(held.has_storage());
    EXPECT_EQ(held.shape(), Shape({5, 20}));
    EXPECT_TRUE(Value(group->GetStateDict()).empty());
    EXPECT_THAT(group->split_sizes(), ElementsAre(16, 5, 33));
    EXPECT_EQ(group->out_features(), 54);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i]->state(), LayerState::kFused);
      EXPECT_TRUE(SameBits(Value(parts[i]->Parameter("weight")), Value(twins[i]->Parameter("weight"))));
      EXPECT_TRUE(SameBits(Value(parts[i]->Parameter("bias")), Value(twins[i]->Parameter("bias"))));
      const absl::Status status = parts[i]->Forward(Random({1, 20}, 1)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr("qkv"));
    }
  }
}

TEST(LinearGroup, PartsOutliveTheGroupObject) {
  const Layers parts = Three({}, Residency::kPacked);
  const Layers twins = Three({}, Residency::kPacked);
  Value(FuseLinears(parts)).reset();
  EXPECT_TRUE(SameBits(Value(parts[2]->Parameter("weight")), Value(twins[2]->Parameter("weight"))));
  EXPECT_FALSE(parts[2]->Forward(Random({1, 20}, 1)).ok());
  ASSERT_TRUE(parts[2]->Bind({{"weight", Random({33, 20}, 1)}, {"bias", Random({33}, 1)}}).ok());
  for (const auto& part : parts) EXPECT_TRUE(part->Forward(Random({1, 20}, 1)).ok());
}

TEST(LinearGroup, MixedResidenciesServePacked) {
  const auto group = Value(FuseLinears(Three({}, Residency::kPerCall)));
  EXPECT_TRUE(group->fused());
  EXPECT_EQ(group->residency(), Residency::kPacked);
}

TEST(LinearGroup, MixedBiasesStillFuse) {
  const auto make = [] { return Layers{MakeLinear(6, 5, 1), MakeLinear(6, 4, 2, {.bias = false})}; };
  const auto group = Value(FuseLinears(make()));
  EXPECT_TRUE(group->fused());
  const Tensor x = Value(Tensor::Zeros(Shape{2, 6}, DType::kFloat32));
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), Apart(make(), x)));
  EXPECT_TRUE(SameBits(Value(group->Forward(Random({3, 6}, 1))), Apart(make(), Random({3, 6}, 1))));
}

TEST(LinearGroup, GatedFusedAndSideBySideAgree) {
  for (Activation gate : {Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kSitu}) {
    for (DType x_dtype : {DType::kFloat32, DType::kBFloat16}) {
      // One layer with the gate of its own is the reference.
      const Tensor up = Random({21, 12}, 1), down = Random({21, 12}, 2);
      const auto whole = Value(Linear::Create(12, 42, {.bias = false, .activation = gate}));
      ASSERT_TRUE(whole->Bind({{"weight", Value(Concat(std::vector<Tensor>{up, down}, 0))}}).ok());
      const Tensor x = Random({5, 12}, 3, x_dtype);
      const Tensor expected = Value(whole->Forward(x));
      const auto parts = [&](int64_t unequal) {
        const Tensor all = Value(Concat(std::vector<Tensor>{up, down}, 0));
        Layers layers;
        for (auto [first, rows] : {std::pair<int64_t, int64_t>{0, unequal}, {unequal, 42 - unequal}}) {
          layers.push_back(Value(Linear::Create(12, rows, {.bias = false})));
          EXPECT_TRUE(layers.back()->Bind({{"weight", Value(all.Slice(0, first, rows))}}).ok());
        }
        return layers;
      };
      for (int64_t unequal : {21, 9}) {
        const Layers layers = parts(unequal);
        const auto group = Value(FuseLinears(layers, {.activation = gate}));
        EXPECT_TRUE(group->fused());
        EXPECT_TRUE(SameBits(Value(group->Forward(x)), expected));
        // Dissolved, the parts run side by side and the gate comes after.
        ASSERT_TRUE(layers[0]->Bind({{"weight", Value(Value(layers[0]->Parameter("weight")).Clone())}}).ok());
        EXPECT_FALSE(group->fused());
        const DispatchCounter counter;
        EXPECT_TRUE(SameBits(Value(group->Forward(x)), expected));
        EXPECT_EQ(counter.total(), 2);
      }
    }
  }
}

TEST(LinearGroup, WhatCannotFuseServesSideBySide) {
  const auto make = [] {
    return Layers{MakeLinear(6, 5, 1, {.name = "q"}), MakeLinear(6, 4, 2, {.dtype = DType::kBFloat16, .name = "k"})};
  };
  const KernelStats before = GetKernelStats();
  const auto group = Value(FuseLinears(make(), {.activation = Activation::kSilu}));
  EXPECT_FALSE(group->fused());
  EXPECT_THAT(group->Explain(), HasSubstr("dtypes"));
  EXPECT_EQ(GetKernelStats().rejections.at("dtypes"),
            (before.rejections.contains("dtypes") ? before.rejections.at("dtypes") : 0) + 1);
  Layers apart = {MakeLinear(6, 5, 1, {.activation = Activation::kSilu}),
                  MakeLinear(6, 4, 2, {.dtype = DType::kBFloat16, .activation = Activation::kSilu})};
  const Tensor x = Random({3, 6}, 4);
  const DispatchCounter counter;
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), Apart(apart, x)));
  EXPECT_EQ(counter.total(), 4);  // two by the group, two by the parts apart
  EXPECT_FALSE(group->parts()[0]->Forward(x).ok());
}

TEST(LinearGroup, UnequalWidthsFuseAndThenRefuseTheInput) {
  const auto group = Value(FuseLinears(Layers{MakeLinear(6, 5, 1), MakeLinear(7, 4, 2, {.name = "wide"})}));
  EXPECT_FALSE(group->fused());
  const absl::Status status = group->Forward(Random({3, 6}, 4)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("wide"));
  EXPECT_THAT(status.message(), HasSubstr("in the group"));
}

TEST(LinearGroup, RefusalsLeaveThePartsAlone) {
  const auto code = [](const Layers& layers, FuseOptions options = {}) {
    const absl::Status status = FuseLinears(layers, options).status();
    for (const auto& layer : layers) {
      if (layer != nullptr && layer->state() == LayerState::kBound) {
        EXPECT_TRUE(Value(layer->Parameter("weight")).has_storage());
      }
    }
    return status.code();
  };
  const auto a = MakeLinear(6, 5, 1), b = MakeLinear(6, 4, 2);
  constexpr auto kState = absl::StatusCode::kFailedPrecondition;
  constexpr auto kArgument = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({}), kArgument);
  EXPECT_EQ(code({a}), kArgument);
  EXPECT_EQ(code({a, nullptr}), kArgument);
  EXPECT_EQ(code({a, Value(QLinear::Create(6, 4, {}))}), kArgument);
  EXPECT_EQ(code({a, a}), kState);
  EXPECT_EQ(code({a, Value(Linear::Create(6, 4, {}))}), kState);
  const auto packed = MakeLinear(6, 5, 1);
  ASSERT_TRUE(packed->Forward(Random({1, 6}, 1)).ok());
  EXPECT_EQ(code({a, packed}), kState);
  const auto per_call = MakeLinear(6, 5, 1, {.residency = Residency::kPerCall});
  ASSERT_TRUE(per_call->Forward(Random({1, 6}, 1)).ok());
  EXPECT_EQ(code({a, per_call}), kState);
  EXPECT_EQ(code({a, b}, {.activation = Activation::kSwiglu}), kState);  // biases
  const LinearOptions bare{.bias = false};
  EXPECT_EQ(code({MakeLinear(6, 5, 1, bare), MakeLinear(6, 4, 1, bare)}, {.activation = Activation::kSwiglu}), kState);
  const LinearOptions relu{.activation = Activation::kRelu}, gelu{.activation = Activation::kGelu};
  EXPECT_EQ(code({MakeLinear(6, 5, 1, relu), MakeLinear(6, 4, 1, gelu)}), kState);
  EXPECT_EQ(code({MakeLinear(6, 5, 1, relu), b}), kState);
  EXPECT_EQ(code({MakeLinear(6, 5, 1, relu), MakeLinear(6, 4, 1, relu)}, {.activation = Activation::kGelu}), kState);
  const LinearOptions gated{.bias = false, .activation = Activation::kSwiglu};
  EXPECT_EQ(code({MakeLinear(6, 4, 1, gated), MakeLinear(6, 4, 1, gated)}), kState);
  const auto group = Value(FuseLinears(Layers{a, b}));
  const auto c = MakeLinear(6, 3, 5);
  EXPECT_EQ(code({c, a}), kState);
  EXPECT_EQ(code({c, group}), kState);
  EXPECT_TRUE(group->fused());
}

TEST(LinearGroup, TheActivationMayBeRepeated) {
  const LinearOptions relu{.activation = Activation::kRelu};
  const auto group = Value(
      FuseLinears(Layers{MakeLinear(6, 5, 1, relu), MakeLinear(6, 4, 2, relu)}, {.activation = Activation::kRelu}));
  EXPECT_EQ(group->activation(), Activation::kRelu);
  const Tensor x = Random({3, 6}, 4);
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), Apart({MakeLinear(6, 5, 1, relu), MakeLinear(6, 4, 2, relu)}, x)));
}

TEST(LinearGroup, ALoadDissolvesAndTheGroupGoesOnServing) {
  for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
    const Layers parts = Three({.residency = residency}, residency);
    const auto group = Value(FuseLinears(parts, {.activation = Activation::kRelu}));
    const Tensor x = Random({4, 20}, 6);
    const Tensor before = Value(group->Forward(x));
    const Tensor weight = Random({5, 20}, 50), bias = Random({5}, 51);
    ASSERT_TRUE(parts[1]->Bind({{"weight", weight}, {"bias", bias}}).ok());
    EXPECT_FALSE(group->fused());
    for (const auto& part : parts) EXPECT_EQ(part->state(), LayerState::kBound);
    const DispatchCounter counter;
    const Tensor after = Value(group->Forward(x));
    EXPECT_EQ(counter.total(), 3);
    EXPECT_TRUE(SameBits(Value(after.Slice(1, 0, 16)), Value(before.Slice(1, 0, 16))));
    EXPECT_TRUE(SameBits(Value(after.Slice(1, 21, 33)), Value(before.Slice(1, 21, 33))));
    const auto fresh = Value(Linear::Create(20, 5, {.activation = Activation::kRelu}));
    ASSERT_TRUE(fresh->Bind({{"weight", weight}, {"bias", bias}}).ok());
    EXPECT_TRUE(SameBits(Value(after.Slice(1, 16, 5)), Value(fresh->Forward(x))));
    EXPECT_THAT(group->Explain(), HasSubstr("dissolved"));
    // Each serves alone again, without the group's activation.
    EXPECT_TRUE(SameBits(Value(parts[0]->Forward(x)), Value(MakeLinear(20, 16, 1)->Forward(x))));
  }
}

TEST(LinearGroup, DissolvedPartsFuseAgain) {
  const Layers parts = Three({}, Residency::kPacked);
  const auto first = Value(FuseLinears(parts, {.name = "first"}));
  const Tensor x = Random({4, 20}, 6);
  const Tensor expected = Value(first->Forward(x));
  ASSERT_TRUE(parts[1]->Bind(Value(parts[1]->GetStateDict())).ok());
  const auto second = Value(FuseLinears(parts, {.name = "second"}));
  EXPECT_TRUE(second->fused());
  EXPECT_TRUE(SameBits(Value(second->Forward(x)), expected));
  const absl::Status status = first->Forward(x).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("second"));
}

TEST(LinearGroup, AFailedOrEmptyLoadLeavesItFused) {
  const Layers parts = Three({}, Residency::kPacked);
  const auto group = Value(FuseLinears(parts));
  const Tensor x = Random({4, 20}, 6);
  const Tensor before = Value(group->Forward(x));
  EXPECT_FALSE(parts[0]->Bind({{"weight", Random({1, 20}, 1)}, {"bias", Random({16}, 1)}}).ok());
  auto model = std::make_shared<ModuleList>(
      std::vector<std::shared_ptr<Module>>{parts[0], parts[1], parts[2], MakeLinear(2, 2, 1), group});
  EXPECT_FALSE(model->LoadStateDict({{"0.weight", Random({16, 20}, 1)}, {"2.weight", Random({1, 1}, 1)}}).ok());
  EXPECT_TRUE(model->LoadStateDict({{"3.bias", Random({2}, 1)}}, {.strict = false}).ok());
  EXPECT_TRUE(group->fused());
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), before));
  // A partial load dissolves, and what it does not bring stays.
  EXPECT_TRUE(model->LoadStateDict({{"0.bias", Random({16}, 1001)}}, {.strict = false}).ok());
  EXPECT_FALSE(group->fused());
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), before));
}

TEST(LinearGroup, WholeModelStateDictIsTheCheckpoints) {  // C040
  const Layers parts = Three({}, Residency::kPacked);
  const auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>(parts.begin(), parts.end()));
  StateDict before;
  for (const auto& [name, tensor] : Value(model->GetStateDict())) before.emplace_back(name, Value(tensor.Clone()));
  const auto group = Value(FuseLinears(parts));
  ASSERT_TRUE(model->Append(group).ok());
  const StateDict after = Value(model->GetStateDict());
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    EXPECT_TRUE(SameBits(after[i].second, before[i].second));
  }
  EXPECT_TRUE(model->LoadStateDict(after).ok());
  const Tensor x = Random({4, 20}, 6);
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), Apart(Three({}, Residency::kPacked), x)));
}

TEST(LinearGroup, EmptyBatchDispatchesNothing) {
  const auto group = Value(FuseLinears(Three({}, Residency::kPacked)));
  const DispatchCounter counter;
  EXPECT_EQ(Value(group->Forward(Floats({0, 20}, {}))).shape(), Shape({0, 54}));
  EXPECT_EQ(counter.total(), 0);
}

}  // namespace
}  // namespace clikart
