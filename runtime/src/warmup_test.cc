#include "clikart/warmup.h"

#include <thread>

#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using ::testing::HasSubstr;
using testing::MakeLinear;
using testing::Random;
using testing::Value;

// What was generated or read from the disk: where kernels come from is not what these tests are about.
int64_t Made(const WarmupReport& report) { return report.compiled + report.loaded; }

TEST(Warmup, PreparesEveryLayerSoThatLaterCallsCompileNothing) {  // C090
  const auto q = MakeLinear(22, 11, 1), k = MakeLinear(22, 9, 2);
  const auto group = Value(FuseLinears(std::vector<std::shared_ptr<Layer>>{q, k}));
  const auto after = MakeLinear(20, 13, 3);
  auto model = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{group, after});
  std::vector<std::pair<int64_t, int64_t>> steps;
  const WarmupReport report =
      Value(Warmup(*model, {.inputs = {{{4, 22}, DType::kFloat32}},
                            .progress = [&](int64_t done, int64_t total, const WarmupItem& item) {
                              EXPECT_TRUE(item.status.ok()) << item.status;
                              steps.emplace_back(done, total);
                              return true;
                            }}));
  EXPECT_EQ(Made(report), 2);
  EXPECT_EQ(report.packed, 1);  // `after`; the group was packed when it was fused
  EXPECT_EQ(report.failed, 0);
  ASSERT_EQ(report.items.size(), 3u);  // two layers and the model's own forward
  EXPECT_EQ(report.items[0].layer, "0");
  EXPECT_THAT(report.items[0].kernel, HasSubstr("n=20 k=22"));
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], std::pair(static_cast<int64_t>(i + 1), int64_t{3}));
  const int64_t compiled = GetKernelStats().compiled;
  for (int64_t m : {1, 7, 300}) ASSERT_TRUE(model->Forward(Random({m, 22}, 1)).ok());
  EXPECT_EQ(GetKernelStats().compiled, compiled);
  const WarmupReport again = Value(Warmup(*model, {.inputs = {{{4, 22}, DType::kFloat32}}}));
  EXPECT_EQ(Made(again), 0);
  EXPECT_EQ(again.packed, 0);
  EXPECT_EQ(again.cached, 2);
}

TEST(Warmup, ListsWhatFailsAndGoesOn) {
  auto model = std::make_shared<ModuleList>(
      std::vector<std::shared_ptr<Module>>{Value(Linear::Create(8, 4, {.name = "empty"})), MakeLinear(8, 4, 1)});
  const WarmupReport report = Value(Warmup(*model, {.inputs = {{{1, 8}, DType::kBFloat16}}}));
  ASSERT_EQ(report.items.size(), 2u);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.items[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.items[0].status.message(), HasSubstr("empty"));
  EXPECT_TRUE(report.items[1].status.ok());
  EXPECT_THAT(report.items[1].kernel, HasSubstr("x=bf16"));
}

TEST(Warmup, FusedPartsArePreparedThroughTheirGroup) {
  const auto q = MakeLinear(8, 4, 1), k = MakeLinear(8, 5, 2);
  const auto group = Value(FuseLinears(std::vector<std::shared_ptr<Layer>>{q, k}));
  auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{q, k});
  const WarmupReport report = Value(Warmup(*model, {.inputs = {{{1, 8}, DType::kFloat32}}}));
  ASSERT_EQ(report.items.size(), 1u);
  EXPECT_TRUE(report.items[0].status.ok());
}

TEST(Warmup, ProgressMayCancel) {
  auto model =
      std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{MakeLinear(8, 4, 1), MakeLinear(8, 4, 1)});
  for (const int jobs : {1, 4}) {
    const auto report = Warmup(*model, {.inputs = {{{1, 8}, DType::kFloat32}},
                                        .progress = [](int64_t done, int64_t, const WarmupItem&) { return done < 1; },
                                        .jobs = jobs});
    EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(report.status().message(), HasSubstr("after 1 of 3"));
  }
  for (const auto& [name, module] : model->children()) {
    EXPECT_TRUE(std::static_pointer_cast<Layer>(module)->Forward(Random({1, 8}, 1)).ok());
  }
}

TEST(Warmup, AStopRequestCancels) {
  const auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>{MakeLinear(8, 4, 1)});
  std::stop_source stop;
  stop.request_stop();
  for (const int jobs : {1, 4}) {
    const WarmupOptions options{.inputs = {{{1, 8}, DType::kFloat32}}, .jobs = jobs, .stop = stop.get_token()};
    EXPECT_EQ(Warmup(*model, options).status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_TRUE(Warmup(*model, {.inputs = {{{1, 8}, DType::kFloat32}}}).ok());
}

TEST(Warmup, ManyAtOnceMakeEachKernelOnce) {
  std::vector<std::shared_ptr<Module>> layers;
  for (int64_t n = 101; n <= 108; ++n) layers.push_back(MakeLinear(8, n, static_cast<uint64_t>(n)));
  auto model = std::make_shared<ModuleList>(layers);
  constexpr size_t kThreads = 16;
  std::vector<WarmupReport> reports(kThreads);
  std::vector<std::thread> threads;
  for (WarmupReport& report : reports) {
    threads.emplace_back([&] { report = Value(Warmup(*model, {.inputs = {{{1, 8}, DType::kFloat32}}, .jobs = 4})); });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t made = 0, packed = 0;
  for (const WarmupReport& report : reports) {
    EXPECT_EQ(report.failed, 0);
    EXPECT_EQ(Made(report) + report.cached, static_cast<int64_t>(layers.size()));
    made += Made(report);
    packed += report.packed;
  }
  EXPECT_EQ(made, static_cast<int64_t>(layers.size()));
  EXPECT_EQ(packed, static_cast<int64_t>(layers.size()));
}

}  // namespace
}  // namespace clikart
