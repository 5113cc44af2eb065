#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using ::testing::HasSubstr;
using testing::MakeLinear;
using testing::Random;
using testing::Value;

using Inputs = std::vector<std::pair<Shape, DType>>;

TEST(Warmup, PreparesEveryLayerSoThatLaterCallsCompileNothing) {  // C090
  const auto q = MakeLinear(22, 11, 1), k = MakeLinear(22, 9, 2);
  const auto group = Value(FuseLinears(std::vector<std::shared_ptr<Layer>>{q, k}));
  const auto after = MakeLinear(20, 13, 3);
  auto model = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{group, after});
  std::vector<std::pair<int64_t, int64_t>> steps;
  const WarmupReport report = Value(
      Warmup(*model, Inputs{{{4, 22}, DType::kFloat32}}, [&](int64_t done, int64_t total, const WarmupItem& item) {
        EXPECT_TRUE(item.status.ok()) << item.status;
        steps.emplace_back(done, total);
        return true;
      }));
  EXPECT_EQ(report.compiled, 2);
  ASSERT_EQ(report.items.size(), 3u);  // two layers and the model's own forward
  EXPECT_EQ(report.items[0].layer, "0");
  EXPECT_THAT(report.items[0].kernel, HasSubstr("n=20 k=22"));
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], std::pair(static_cast<int64_t>(i + 1), int64_t{3}));
  const int64_t compiled = GetKernelStats().compiled;
  for (int64_t m : {1, 7, 300}) ASSERT_TRUE(model->Forward(Random({m, 22}, 1)).ok());
  EXPECT_EQ(GetKernelStats().compiled, compiled);
  EXPECT_EQ(Value(Warmup(*model, Inputs{{{4, 22}, DType::kFloat32}})).compiled, 0);
}

TEST(Warmup, ListsWhatFailsAndGoesOn) {
  auto model = std::make_shared<ModuleList>(
      std::vector<std::shared_ptr<Module>>{Value(Linear::Create(8, 4, {.name = "empty"})), MakeLinear(8, 4, 1)});
  const WarmupReport report = Value(Warmup(*model, Inputs{{{1, 8}, DType::kBFloat16}}));
  ASSERT_EQ(report.items.size(), 2u);
  EXPECT_EQ(report.items[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.items[0].status.message(), HasSubstr("empty"));
  EXPECT_TRUE(report.items[1].status.ok());
  EXPECT_THAT(report.items[1].kernel, HasSubstr("x=bf16"));
}

TEST(Warmup, FusedPartsArePreparedThroughTheirGroup) {
  const auto q = MakeLinear(8, 4, 1), k = MakeLinear(8, 5, 2);
  const auto group = Value(FuseLinears(std::vector<std::shared_ptr<Layer>>{q, k}));
  auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{q, k});
  const WarmupReport report = Value(Warmup(*model, Inputs{{{1, 8}, DType::kFloat32}}));
  ASSERT_EQ(report.items.size(), 1u);
  EXPECT_TRUE(report.items[0].status.ok());
}

TEST(Warmup, ManifestsOfAnEarlierRunCompileAhead) {
  ASSERT_TRUE(MakeLinear(8, 46, 1)->Forward(Random({1, 8}, 1)).ok());
  std::vector<std::string> manifest;
  for (const KernelInfo& kernel : ListKernels()) {
    if (kernel.signature.find("n=46 ") != std::string::npos) manifest.push_back(kernel.signature);
  }
  ASSERT_EQ(manifest.size(), 1u);
  manifest.push_back("no signature");
  ClearKernels();
  // The first run's kernel may be on disk by now, or still on its way there.
  const auto made = [] { return GetKernelStats().compiled + GetKernelStats().loaded; };
  const int64_t before = made();
  const WarmupReport report = Value(Warmup(manifest));
  EXPECT_EQ(made() - before, 1);
  EXPECT_EQ(report.items[0].kernel, manifest[0]);
  EXPECT_FALSE(report.items[1].status.ok());
  ASSERT_TRUE(MakeLinear(8, 46, 1)->Forward(Random({1, 8}, 1)).ok());
  EXPECT_EQ(made() - before, 1);
}

TEST(Warmup, ProgressMayCancel) {
  auto model =
      std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{MakeLinear(8, 4, 1), MakeLinear(8, 4, 1)});
  const auto report = Warmup(*model, Inputs{{{1, 8}, DType::kFloat32}},
                             [](int64_t done, int64_t, const WarmupItem&) { return done < 1; });
  EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace clikart
