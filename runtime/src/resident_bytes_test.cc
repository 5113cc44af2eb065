#include "clikart/nn.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using testing::MakeLinear;
using testing::Random;
using testing::Value;

TEST(ResidentBytes, AreTheTensorsOrThePack) {
  const auto unbound = Value(Linear::Create(32, 16));
  EXPECT_EQ(unbound->ResidentBytes(), 0);
  const auto layer = MakeLinear(32, 16, 1);
  EXPECT_EQ(layer->ResidentBytes(), (32 * 16 + 16) * 4);
  ASSERT_TRUE(layer->Forward(Random({2, 32}, 2)).ok());
  EXPECT_EQ(layer->ResidentBytes(), (32 * 16 + 16 + 16) * 4);  // the kernel's bias beside the loaded one
}

TEST(ResidentBytes, CountAGroupsPackOnce) {
  const std::vector<std::shared_ptr<Layer>> parts = {MakeLinear(32, 16, 1, {.bias = false}),
                                                     MakeLinear(32, 48, 2, {.bias = false})};
  const auto group = Value(FuseLinears(parts));
  const auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{parts[0], parts[1], group});
  EXPECT_EQ(model->ResidentBytes(), 32 * 64 * 4);
  EXPECT_EQ(group->ResidentBytes(), 32 * 64 * 4);
  // The parts have tensors of their own again.
  ASSERT_TRUE(parts[0]->Bind(Value(parts[0]->GetStateDict())).ok());
  EXPECT_EQ(parts[0]->ResidentBytes(), 32 * 16 * 4);
  EXPECT_EQ(model->ResidentBytes(), 32 * 64 * 4);
}

TEST(ResidentBytes, TiedLayersAndSharedMemoryCountOnce) {
  const auto layer = MakeLinear(32, 16, 1, {.bias = false});
  const auto other = Value(Linear::Create(32, 16, {.bias = false}));
  ASSERT_TRUE(other->Bind({{"weight", Value(layer->Parameter("weight"))}}, {.assign = true}).ok());
  const auto model = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{layer, other, layer});
  EXPECT_EQ(model->ResidentBytes(), 32 * 16 * 4);
}

TEST(ResidentBytes, OfAJoinedWeightAreItsOwn) {
  const LinearOptions options{.bias = false, .residency = Residency::kPerCall};
  const std::vector<std::shared_ptr<Layer>> parts = {MakeLinear(32, 16, 1, options), MakeLinear(32, 16, 2, options)};
  const auto group = Value(FuseLinears(parts));
  EXPECT_EQ(group->ResidentBytes(), 32 * 32 * 4);
}

}  // namespace
}  // namespace clikart
