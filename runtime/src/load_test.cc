#include "clikart/nn.h"
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
using testing::ToFloats;
using testing::Value;

std::vector<std::string> NamesOf(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

Tensor Get(const StateDict& state, std::string_view name) {
  for (const auto& [key, tensor] : state) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

std::shared_ptr<Sequential> TwoLayers() {
  return std::make_shared<Sequential>(
      std::vector<std::shared_ptr<Module>>{MakeLinear(4, 5, 1), MakeLinear(5, 3, 2, {.bias = false})});
}

TEST(Module, ChildrenHaveNamesAndPlaces) {
  auto model = std::make_shared<Module>();
  ASSERT_TRUE(model->RegisterChild("a", TwoLayers()).ok());
  ASSERT_TRUE(model->RegisterChild("b", MakeLinear(2, 2, 3)).ok());
  for (const char* bad : {"", "x.y"}) {
    EXPECT_EQ(model->RegisterChild(bad, TwoLayers()).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(model->RegisterChild("c", nullptr).code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> names;
  for (const auto& [name, module] : model->NamedModules()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("", "a", "a.0", "a.1", "b"));
  ASSERT_TRUE(model->RegisterChild("a", MakeLinear(2, 2, 4)).ok());  // keeps its place
  EXPECT_EQ(model->children()[0].first, "a");
  EXPECT_TRUE(model->RemoveChild("b"));
  EXPECT_FALSE(model->RemoveChild("b"));
  EXPECT_EQ(model->Forward(Random({1, 2}, 1)).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Module, TiedLayersAppearOnceAmongModulesAndUnderEachNameInTheStateDict) {
  const auto tied = MakeLinear(2, 2, 3);
  auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{tied, tied});
  EXPECT_EQ(model->NamedModules().size(), 2u);
  const StateDict state = Value(model->GetStateDict());
  EXPECT_THAT(NamesOf(state), ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  EXPECT_TRUE(model->LoadStateDict(state).ok());
}

TEST(Module, SequentialRunsInOrder) {
  const auto model = TwoLayers();
  const Tensor x = Random({3, 4}, 5);
  Tensor expected = x;
  for (const auto& [name, layer] : model->children()) expected = Value(layer->Forward(expected));
  EXPECT_TRUE(SameBits(Value(model->Forward(x)), expected));
}

TEST(StateDict, RoundTripsBeforeAndAfterPacking) {
  const auto model = TwoLayers();
  const StateDict before = Value(model->GetStateDict());
  EXPECT_THAT(NamesOf(before), ElementsAre("0.weight", "0.bias", "1.weight"));
  const Tensor weight = Value(Get(before, "0.weight").Clone());
  ASSERT_TRUE(model->Forward(Random({3, 4}, 5)).ok());
  const StateDict after = Value(model->GetStateDict());
  EXPECT_EQ(NamesOf(after), NamesOf(before));
  EXPECT_TRUE(SameBits(Get(after, "0.weight"), weight));
  const auto other = TwoLayers();
  ASSERT_TRUE(other->LoadStateDict(after).ok());
  EXPECT_TRUE(SameBits(Value(other->Forward(Random({3, 4}, 6))), Value(model->Forward(Random({3, 4}, 6)))));
}

TEST(Load, ListsEveryProblemAtOnceAndChangesNothing) {  // C044
  const auto model = TwoLayers();
  const Tensor x = Random({3, 4}, 5);
  const Tensor before = Value(model->Forward(x));
  const absl::Status status =
      model
          ->LoadStateDict(
              {{"0.weight", Random({5, 4}, 9)}, {"0.weigth", Random({5, 4}, 9)}, {"1.weight", Random({4, 5}, 9)}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* text : {"0.bias", "0.weigth", "1.weight", "float32[4, 5]", "float32[3, 5]"}) {
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
  EXPECT_TRUE(SameBits(Value(model->Forward(x)), before));
}

TEST(Load, NotStrictReturnsTheListsAndKeepsWhatIsNotBrought) {
  for (bool packed : {false, true}) {
    const auto model = TwoLayers();
    if (packed) Value(model->Forward(Random({3, 4}, 5)));
    const StateDict before = Value(model->GetStateDict());
    const Tensor bias = Random({5}, 77);
    const LoadReport report = Value(model->LoadStateDict({{"0.bias", bias}, {"x", bias}}, {.strict = false}));
    EXPECT_THAT(report.missing, ElementsAre("0.weight", "1.weight"));
    EXPECT_THAT(report.unexpected, ElementsAre("x"));
    const StateDict after = Value(model->GetStateDict());
    EXPECT_TRUE(SameBits(Get(after, "0.bias"), bias));
    EXPECT_TRUE(SameBits(Get(after, "0.weight"), Get(before, "0.weight")));
    // Shapes and dtypes are errors all the same.
    EXPECT_FALSE(model->LoadStateDict({{"0.bias", Random({6}, 1)}}, {.strict = false}).ok());
  }
}

TEST(Load, NotStrictLeavesAnIncompleteLayerUnbound) {
  const auto layer = Value(Linear::Create(4, 5, {}));
  ASSERT_TRUE(layer->LoadStateDict({{"bias", Random({5}, 1)}}, {.strict = false}).ok());
  EXPECT_EQ(layer->state(), LayerState::kUnbound);
  ASSERT_TRUE(layer->LoadStateDict({{"weight", Random({5, 4}, 1)}}, {.strict = false}).ok());
  EXPECT_EQ(layer->state(), LayerState::kBound);
  EXPECT_TRUE(SameBits(Value(layer->Parameter("bias")), Random({5}, 1)));
}

TEST(Load, CopiesAndConvertsToNearestEven) {  // C010
  const auto layer = Value(Linear::Create(1, 3, {.bias = false, .dtype = DType::kBFloat16}));
  const Tensor weight = Floats({3, 1}, {1.00390625f, 1.01171875f, 3.4028235e38f});  // ties, and past the largest
  ASSERT_TRUE(layer->Bind({{"weight", weight}}).ok());
  EXPECT_THAT(ToFloats(Value(layer->Parameter("weight"))), ElementsAre(1.0f, 1.015625f, INFINITY));
  const auto plain = Value(Linear::Create(1, 3, {.bias = false}));
  ASSERT_TRUE(plain->Bind({{"weight", weight}}).ok());
  EXPECT_NE(Value(plain->Parameter("weight")).Pin()->data, weight.Pin()->data);
}

TEST(Load, AssignKeepsTheMemoryAndNeedsTheDType) {
  const auto layer = Value(Linear::Create(4, 3, {.bias = false, .dtype = DType::kFloat16}));
  const Tensor weight = Random({3, 4}, 1, DType::kFloat16);
  EXPECT_FALSE(layer->Bind({{"weight", Random({3, 4}, 1)}}, {.assign = true}).ok());
  ASSERT_TRUE(layer->Bind({{"weight", weight}}, {.assign = true}).ok());
  EXPECT_EQ(Value(layer->Parameter("weight")).Pin()->data, weight.Pin()->data);
  ASSERT_TRUE(layer->Forward(Random({1, 4}, 1)).ok());
  EXPECT_TRUE(weight.has_storage());  // the caller's own handle stays
}

TEST(Load, TwoLayersOnOneMemoryStayIndependent) {  // C046
  const Tensor weight = Random({3, 4}, 1);
  const auto a = Value(Linear::Create(4, 3, {.bias = false}));
  const auto b = Value(Linear::Create(4, 3, {.bias = false}));
  ASSERT_TRUE(a->Bind({{"weight", weight}}, {.assign = true}).ok());
  ASSERT_TRUE(b->Bind({{"weight", weight}}, {.assign = true}).ok());
  ASSERT_TRUE(a->Forward(Random({1, 4}, 1)).ok());
  EXPECT_TRUE(SameBits(Value(b->Parameter("weight")), weight));
}

TEST(Load, IntegersNeverConvert) {
  const auto layer = Value(Linear::Create(2, 2, {.bias = false}));
  const std::vector<int32_t> ones(4, 1);
  const Tensor weight = Value(Tensor::FromVector<int32_t>(Shape{2, 2}, DType::kInt32, ones));
  EXPECT_THAT(layer->Bind({{"weight", weight}}).message(), HasSubstr("found int32[2, 2]"));
}

TEST(Load, StridedTensorsAreTakenByValue) {
  const auto layer = Value(Linear::Create(4, 3, {.bias = false}));
  const Tensor wide = Random({3, 9}, 1);
  const Tensor weight = Value(wide.Slice(1, 1, 4, 2));
  for (bool assign : {false, true}) {
    ASSERT_TRUE(layer->Bind({{"weight", weight}}, {.assign = assign}).ok());
    EXPECT_TRUE(SameBits(Value(layer->Parameter("weight")), weight));
  }
}

TEST(Load, BiasesAreFloat32OrTheLayersDTypeAndStayAsGiven) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const auto layer = Value(Linear::Create(2, 2, {.dtype = DType::kBFloat16}));
    const Tensor bias = Random({2}, 1, dtype);
    ASSERT_TRUE(layer->Bind({{"weight", Random({2, 2}, 1)}, {"bias", bias}}).ok());
    ASSERT_TRUE(layer->Forward(Random({1, 2}, 1)).ok());
    EXPECT_TRUE(SameBits(Value(layer->Parameter("bias")), bias));
  }
}

TEST(Load, AfterPackingServesTheNewWeights) {
  const auto layer = MakeLinear(4, 5, 1);
  const auto other = MakeLinear(4, 5, 2);
  const Tensor x = Random({3, 4}, 5);
  ASSERT_TRUE(layer->Forward(x).ok());
  ASSERT_TRUE(layer->LoadStateDict(Value(other->GetStateDict())).ok());
  EXPECT_EQ(layer->state(), LayerState::kBound);
  EXPECT_TRUE(SameBits(Value(layer->Forward(x)), Value(other->Forward(x))));
}

}  // namespace
}  // namespace clikart
