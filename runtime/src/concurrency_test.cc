// Forwards while other threads load, fuse and dissolve (C051, C071).
#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "fork_testing.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using testing::Floats;
using testing::MakeLinear;
using testing::Random;
using testing::SameBits;
using testing::ToFloats;
using testing::Value;

constexpr int kThreads = 8;
constexpr int kLoads = 40;
constexpr int kResults = 100;

Tensor Filled(const Shape& shape, float value) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return Floats(shape, std::vector<float>(static_cast<size_t>(count), value));
}

// Calls `check` on many threads while `change` runs on this one: kLoads times, and on until kResults checks
// have seen a result, however late a busy machine starts the threads. `check` says whether it saw one.
void Race(const std::function<bool()>& check, const std::function<void(int)>& change) {
  std::atomic<bool> stop{false};
  std::atomic<int> results{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (!stop) results += check() ? 1 : 0;
    });
  }
  for (int i = 0; i < kLoads || results < kResults; ++i) {
    change(i);
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// Every element of y is `k` times one of the two weights, the same for all of them. Always true: a result was seen.
bool ExpectAllOldOrAllNew(const absl::StatusOr<Tensor>& y, float k) {
  EXPECT_TRUE(y.ok()) << y.status();
  if (!y.ok()) return true;
  const std::vector<float> values = ToFloats(*y);
  EXPECT_TRUE(values[0] == k || values[0] == 2 * k) << values[0];
  for (float value : values) EXPECT_EQ(value, values[0]);
  return true;
}

TEST(Concurrency, ALoadIsSeenWhollyOrNotAtAll) {
  for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
    const auto layer = Value(Linear::Create(32, 50, {.bias = false, .residency = residency}));
    ASSERT_TRUE(layer->Bind({{"weight", Filled({50, 32}, 1)}}).ok());
    const Tensor x = Filled({3, 32}, 1);
    Race([&] { return ExpectAllOldOrAllNew(layer->Forward(x), 32); },
         [&](int i) { EXPECT_TRUE(layer->Bind({{"weight", Filled({50, 32}, static_cast<float>(1 + i % 2))}}).ok()); });
  }
}

TEST(Concurrency, AConvolutionToo) {
  const auto conv =
      Value(Conv::Create(4, 20, {.kernel_size = {3, 3}, .padding_mode = PaddingMode::kReflect, .bias = false}));
  ASSERT_TRUE(conv->Bind({{"weight", Filled({20, 4, 3, 3}, 1)}}).ok());
  const Tensor x = Filled({2, 5, 5, 4}, 1);
  Race(
      [&] { return ExpectAllOldOrAllNew(conv->Forward(x), 36); },
      [&](int i) { EXPECT_TRUE(conv->Bind({{"weight", Filled({20, 4, 3, 3}, static_cast<float>(1 + i % 2))}}).ok()); });
}

TEST(Concurrency, AGroupSeesAllOfItsPartsOldOrNewAndMayBeFusedAgain) {
  for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
    std::vector<std::shared_ptr<Layer>> parts;
    for (int64_t rows : {16, 5, 30}) {
      parts.push_back(Value(Linear::Create(32, rows, {.bias = false, .residency = residency})));
    }
    auto model = std::make_shared<ModuleList>(std::vector<std::shared_ptr<Module>>(parts.begin(), parts.end()));
    const auto state = [&](float value) {
      return StateDict{{"0.weight", Filled({16, 32}, value)},
                       {"1.weight", Filled({5, 32}, value)},
                       {"2.weight", Filled({30, 32}, value)}};
    };
    ASSERT_TRUE(model->LoadStateDict(state(1)).ok());
    std::mutex mutex;
    std::shared_ptr<LinearGroup> group = Value(FuseLinears(parts));
    const auto current = [&] {
      const std::lock_guard lock(mutex);
      return group;
    };
    const Tensor x = Filled({3, 32}, 1);
    Race(
        [&] {
          const absl::StatusOr<Tensor> y = current()->Forward(x);
          // A group whose parts were fused anew says so.
          return !absl::IsFailedPrecondition(y.status()) && ExpectAllOldOrAllNew(y, 32);
        },
        [&](int i) {
          EXPECT_TRUE(model->LoadStateDict(state(static_cast<float>(1 + i % 2))).ok());
          if (i % 3 != 0) return;
          // A forward of the dissolved group may have packed a part already.
          absl::StatusOr<std::shared_ptr<LinearGroup>> again = FuseLinears(parts);
          if (!again.ok()) return;
          const std::lock_guard lock(mutex);
          group = *std::move(again);
        });
  }
}

TEST(Concurrency, TheFirstForwardPacksOnce) {
  for (int round = 0; round < 20; ++round) {
    const auto layer = MakeLinear(40, 33, 1);
    const Tensor x = Random({3, 40}, 2);
    std::vector<Tensor> results(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { results[static_cast<size_t>(i)] = Value(layer->Forward(x)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& result : results) EXPECT_TRUE(SameBits(result, results[0]));
  }
}

TEST(Concurrency, StateDictsReadDuringTheFirstForward) {
  for (int round = 0; round < 20; ++round) {
    const auto layer = MakeLinear(40, 33, 1);
    const Tensor expected = Random({33, 40}, 1);
    std::thread reader([&] {
      for (int i = 0; i < 10; ++i) {
        // A view taken before the pack may lose its storage, never its bits.
        const Tensor weight = Value(layer->Parameter("weight"));
        const absl::StatusOr<Tensor> copy = weight.Clone();
        if (copy.ok()) {
          EXPECT_TRUE(SameBits(*copy, expected));
        }
      }
    });
    EXPECT_TRUE(layer->Forward(Random({1, 40}, 2)).ok());
    reader.join();
  }
}

TEST(Concurrency, AForkBesideLoadsAndPacksLeavesAWorkingChild) {  // C066
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  const auto busy = Value(Linear::Create(1000, 1000, {.bias = false}));
  const Tensor large = Filled({1000, 1000}, 1), row = Filled({1, 1000}, 1);
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    while (!stop) {
      EXPECT_TRUE(busy->Bind({{"weight", large}}).ok());
      EXPECT_TRUE(busy->Forward(row).ok());
    }
  });
  const auto layer = Value(Linear::Create(32, 50, {.bias = false}));
  const Tensor small = Filled({50, 32}, 1), x = Filled({1, 32}, 1);
  for (int i = 0; i < 20; ++i) {
    const int code = ExitCodeOfChild([&] {
      if (!layer->Bind({{"weight", small}}).ok() || !busy->Bind({{"weight", large}}).ok()) return 1;
      return layer->Forward(x).ok() && busy->Forward(row).ok() ? 0 : 2;
    });
    EXPECT_EQ(code, 0);
    if (code != 0) break;
  }
  stop = true;
  thread.join();
}

// Forks while other threads are in `forward`, which the child then calls too.
void ForkAmong(const std::function<bool()>& forward) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) EXPECT_TRUE(forward());
    });
  }
  for (int i = 0; i < 50; ++i) {
    const int code = ExitCodeOfChild([&] { return forward() ? 0 : 1; });
    EXPECT_EQ(code, 0);
    if (code != 0) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Concurrency, AForkAmongForwardsOfALinearLeavesItServing) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  const auto layer = MakeLinear(1, 1, 1);
  const Tensor x = Filled({1, 1}, 1);
  ASSERT_TRUE(layer->Forward(x).ok());
  ForkAmong([&]() -> bool { return layer->Forward(x).ok(); });
}

TEST(Concurrency, AForkAmongForwardsOfAGroupLeavesItServing) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  const std::vector<std::shared_ptr<Layer>> parts = {MakeLinear(1, 1, 1), MakeLinear(1, 1, 2)};
  const auto group = Value(FuseLinears(parts));
  const Tensor x = Filled({1, 1}, 1);
  ASSERT_TRUE(group->Forward(x).ok());
  ForkAmong([&]() -> bool { return group->Forward(x).ok(); });
}

// Its parts' kernels under the group's activation are looked up in each forward.
TEST(Concurrency, AForkAmongForwardsOfADissolvedGroupLeavesItServing) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  const std::vector<std::shared_ptr<Layer>> parts = {MakeLinear(1, 1, 1), MakeLinear(1, 1, 2)};
  const auto group = Value(FuseLinears(parts, {.activation = Activation::kRelu}));
  ASSERT_TRUE(parts[0]->Bind({{"weight", Filled({1, 1}, 1)}, {"bias", Filled({1}, 1)}}).ok());
  const Tensor x = Filled({1, 1}, 1);
  ASSERT_TRUE(group->Forward(x).ok());
  ForkAmong([&]() -> bool { return group->Forward(x).ok(); });
}

TEST(Concurrency, AForkAmongForwardsOfAConvLeavesItServing) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  const auto layer = Value(Conv::Create(1, 1, {.kernel_size = {2}, .bias = false}));
  ASSERT_TRUE(layer->Bind({{"weight", Filled({1, 1, 2}, 1)}}).ok());
  // More sizes than tables are kept, so that many are made.
  std::vector<Tensor> inputs;
  for (int64_t size = 2; size < 20; ++size) inputs.push_back(Filled({1, size, 1}, 1));
  const auto forward = [&] {
    return std::all_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return layer->Forward(x).ok(); });
  };
  ASSERT_TRUE(forward());
  ForkAmong(forward);
}

}  // namespace
}  // namespace clikart
