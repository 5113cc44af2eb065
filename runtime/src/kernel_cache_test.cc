#include "kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "fork_testing.h"

namespace clikart {
namespace {

using codegen::EmittedKernel;
using codegen::Emitter;
using codegen::Rejection;
using codegen::RejectReason;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Emits `bytes` bytes that nobody runs, or rejects.
class FakeEmitter : public Emitter {
 public:
  FakeEmitter(std::string name, size_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  std::string_view name() const override { return name_; }
  bool needs_executable_memory() const override { return bytes_ > 0; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec,
                                              const codegen::Target& target) const override {
    emitted.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms.load()));
    if (rejects) return Rejection{RejectReason::kDataType, "found f16, expected f32"};
    EmittedKernel kernel;
    kernel.spec = spec;
    kernel.emitter = name_;
    kernel.isa = target.level();
    kernel.code.assign(bytes_, 0xc3);
    kernel.entry_offsets.fill(-1);
    if (bytes_ > 0) kernel.entry_offsets[3] = static_cast<int32_t>(bytes_ - 1);
    kernel.run = [](const codegen::KernelImage&, const codegen::TileArgs&) {};
    return kernel;
  }

  mutable std::atomic<int> emitted{0};
  std::atomic<int> delay_ms{0};
  bool rejects = false;

 private:
  std::string name_;
  size_t bytes_;
};

ir::KernelSpec Spec(int64_t n) {
  ir::KernelSpec spec;
  spec.n = n;
  spec.k = 4;
  return spec;
}

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheOptions Options() {
    KernelCacheOptions options;
    options.emitters = emitters_;
    options.target = codegen::TargetOf(codegen::IsaLevel::kAvx2);
    return options;
  }

  FakeEmitter fast_{"fast", 100}, slow_{"slow", 0};
  std::vector<const Emitter*> emitters_ = {&fast_, &slow_};
};

TEST_F(KernelCacheTest, CompilesOnceAndCountsHits) {
  KernelCache cache(Options());
  const auto first = *cache.GetOrCompile(Spec(16)), again = *cache.GetOrCompile(Spec(16));
  EXPECT_EQ(first, again);
  EXPECT_EQ(first->emitter, "fast");
  EXPECT_EQ(first->signature, Spec(16).ToString() + "@avx2/fast");
  EXPECT_EQ(first->image.entries[3], first->code->data() + 99);
  EXPECT_EQ(first->image.entries[0], nullptr);
  EXPECT_GE(first->jit_seconds, 0);
  (void)*cache.GetOrCompile(Spec(32));
  const KernelStats stats = cache.Stats();
  EXPECT_EQ(stats.entries, 2);
  EXPECT_EQ(stats.compiled, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.loaded, 0);
  EXPECT_EQ(stats.code_bytes, 200);
  EXPECT_THAT(stats.rejections, IsEmpty());
  const auto list = cache.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].signature, first->signature);
  EXPECT_EQ(list[1].emitter, "fast");
  EXPECT_EQ(list[1].isa, "avx2");
  EXPECT_EQ(list[1].code_bytes, 100);
  EXPECT_EQ(list[1].hits, 1);
}

TEST_F(KernelCacheTest, SixteenThreadsCompileOnce) {
  fast_.delay_ms = 20;
  KernelCache cache(Options());
  std::vector<std::shared_ptr<const Kernel>> kernels(16);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kernels.size(); ++i) {
    threads.emplace_back([&, i] { kernels[i] = *cache.GetOrCompile(Spec(16)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fast_.emitted, 1);
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(cache.Stats().compiled, 1);
  EXPECT_EQ(cache.Stats().hits, 15);
}

TEST_F(KernelCacheTest, RejectionFallsBackAndIsCountedAndLoggedOnce) {
  fast_.rejects = true;
  KernelCache cache(Options());
  const auto kernel = *cache.GetOrCompile(Spec(16));
  (void)*cache.GetOrCompile(Spec(32));
  EXPECT_EQ(kernel->emitter, "slow");
  EXPECT_EQ(kernel->code, nullptr);
  ASSERT_EQ(kernel->rejections.size(), 1u);
  EXPECT_EQ(kernel->rejections[0].reason, RejectReason::kDataType);
  EXPECT_THAT(cache.Stats().rejections, ElementsAre(Pair("data_type", 2)));
  cache.CountRejection("mixed_inputs", "the parts run side by side");
  EXPECT_THAT(cache.Stats().rejections, ElementsAre(Pair("data_type", 2), Pair("mixed_inputs", 1)));
}

TEST_F(KernelCacheTest, StrictMakesAFallbackAnError) {
  fast_.rejects = true;
  KernelCacheOptions options = Options();
  options.strict = true;
  KernelCache cache(options);
  const absl::Status status = cache.GetOrCompile(Spec(16)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CLIKART_STRICT"), HasSubstr("data_type"), HasSubstr("found f16, expected f32")));
  // Who asked for the last emitter by name gets it.
  options.emitter = "slow";
  KernelCache chosen(options);
  EXPECT_EQ((*chosen.GetOrCompile(Spec(16)))->emitter, "slow");
}

TEST_F(KernelCacheTest, EmitterSettingNarrowsTheList) {
  KernelCacheOptions options = Options();
  options.emitter = "slow";
  KernelCache cache(options);
  const auto kernel = *cache.GetOrCompile(Spec(16));
  EXPECT_EQ(kernel->emitter, "slow");
  EXPECT_EQ(fast_.emitted, 0);
  ASSERT_EQ(kernel->rejections.size(), 1u);
  EXPECT_EQ(kernel->rejections[0].reason, RejectReason::kDisabled);
  EXPECT_THAT(cache.Stats().rejections, IsEmpty());  // a wish is no refusal
}

TEST_F(KernelCacheTest, NoExecutableMemoryIsARejection) {
  KernelCacheOptions options = Options();
  options.make_executable = [](std::span<const uint8_t>) -> absl::StatusOr<std::shared_ptr<ExecutableBlock>> {
    return absl::PermissionDeniedError("the policy says no");
  };
  KernelCache cache(options);
  const auto kernel = *cache.GetOrCompile(Spec(16));
  EXPECT_EQ(kernel->emitter, "slow");
  EXPECT_EQ(kernel->rejections[0].reason, RejectReason::kExecutableMemory);
  EXPECT_EQ(kernel->rejections[0].detail, "the policy says no");
  EXPECT_THAT(cache.Stats().rejections, ElementsAre(Pair("executable_memory", 1)));
}

TEST_F(KernelCacheTest, EverybodyRejects) {
  fast_.rejects = slow_.rejects = true;
  KernelCache cache(Options());
  EXPECT_EQ(cache.GetOrCompile(Spec(16)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cache.Stats().entries, 0);
  slow_.rejects = false;
  EXPECT_TRUE(cache.GetOrCompile(Spec(16)).ok());  // an error is not kept
}

TEST_F(KernelCacheTest, BadSpecIsInvalid) {
  KernelCache cache(Options());
  EXPECT_EQ(cache.GetOrCompile(Spec(-1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fast_.emitted, 0);
}

TEST_F(KernelCacheTest, LeastRecentlyUsedGoFirstAndHeldKernelsLive) {
  KernelCache cache(Options());
  const auto held = *cache.GetOrCompile(Spec(1));
  for (int64_t n = 2; n <= 10; ++n) (void)*cache.GetOrCompile(Spec(n));
  (void)*cache.GetOrCompile(Spec(2));
  const int64_t one = 2048 + 100;
  cache.SetByteBudget(3 * one);
  const auto list = cache.List();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_THAT(list[0].signature, HasSubstr(Spec(2).ToString()));
  EXPECT_THAT(list[1].signature, HasSubstr(Spec(10).ToString()));
  EXPECT_THAT(list[2].signature, HasSubstr(Spec(9).ToString()));
  EXPECT_EQ(held->code->data()[0], 0xc3);
  EXPECT_NE(*cache.GetOrCompile(Spec(1)), held);
  EXPECT_EQ(cache.Stats().entries, 3);
  EXPECT_EQ(cache.Stats().code_bytes, 300);
  cache.Clear();
  EXPECT_EQ(cache.Stats().entries, 0);
  EXPECT_EQ(cache.Stats().code_bytes, 0);
  cache.SetByteBudget(0);
  EXPECT_TRUE(cache.GetOrCompile(Spec(1)).ok());
  EXPECT_EQ(cache.Stats().entries, 0);
}

TEST_F(KernelCacheTest, NothingIsKeptWhenOff) {
  KernelCacheOptions options = Options();
  options.keep = false;
  KernelCache cache(options);
  (void)*cache.GetOrCompile(Spec(16));
  (void)*cache.GetOrCompile(Spec(16));
  EXPECT_EQ(fast_.emitted, 2);
  EXPECT_THAT(cache.List(), IsEmpty());
}

TEST_F(KernelCacheTest, ThrashingThreads) {
  KernelCacheOptions options = Options();
  options.byte_budget = 4000;  // one entry
  KernelCache cache(options);
  std::atomic<bool> stop{false};
  std::thread clearer([&] {
    while (!stop) {
      cache.Clear();
      (void)cache.List();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 150; ++i) {
        const int64_t n = 1 + (t + i) % 16;
        const auto kernel = cache.GetOrCompile(Spec(n));
        ASSERT_TRUE(kernel.ok());
        ASSERT_EQ((*kernel)->image.spec.n, n);
        ASSERT_EQ((*kernel)->code->data()[0], 0xc3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  clearer.join();
  EXPECT_LE(cache.Stats().entries, 1);
}

TEST_F(KernelCacheTest, RefusedMemoryIsOneWarningAndAskedForOnce) {
  KernelCacheOptions options = Options();
  options.make_executable = [](std::span<const uint8_t>) {
    return absl::StatusOr<std::shared_ptr<ExecutableBlock>>(absl::PermissionDeniedError("a policy, and its remedy"));
  };
  KernelCache cache(options);
  ::testing::internal::CaptureStderr();
  for (int64_t n = 1; n <= 3; ++n) {
    const auto kernel = *cache.GetOrCompile(Spec(n));
    EXPECT_EQ(kernel->emitter, "slow");
    ASSERT_EQ(kernel->rejections.size(), 1u);
    EXPECT_EQ(kernel->rejections[0].reason, RejectReason::kExecutableMemory);
    EXPECT_EQ(kernel->rejections[0].detail, "a policy, and its remedy");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "clikart: warning: a policy, and its remedy; kernels are portable C++\n");
  EXPECT_EQ(fast_.emitted, 1);  // no code is made that cannot be run
  EXPECT_THAT(cache.Stats().rejections, ElementsAre(Pair("executable_memory", 3)));
}

TEST_F(KernelCacheTest, ScarceMemoryMayBeHadLater) {
  static std::atomic<bool> scarce;
  scarce = true;
  KernelCacheOptions options = Options();
  options.make_executable = [](std::span<const uint8_t> code) {
    if (scarce) return absl::StatusOr<std::shared_ptr<ExecutableBlock>>(absl::ResourceExhaustedError("no memory"));
    return MakeExecutable(code);
  };
  KernelCache cache(options);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ((*cache.GetOrCompile(Spec(1)))->emitter, "slow");
  scarce = false;
  EXPECT_EQ((*cache.GetOrCompile(Spec(2)))->emitter, "fast");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "clikart: warning: no memory; kernels are portable C++\n");
}

// The process's own cache, with the real emitters.
TEST(KernelCacheInstanceTest, ForkWhileAnotherThreadCompiles) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  std::atomic<bool> stop{false};
  std::thread compiler([&] {
    for (int64_t n = 1; !stop; n = n % 1000 + 1) {
      EXPECT_TRUE(KernelCache::Instance().GetOrCompile(Spec(n)).ok());
      if (n % 50 == 0) ClearKernels();
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ExitCodeOfChild([] {
                for (int64_t n = 1; n < 40; ++n) {
                  if (!KernelCache::Instance().GetOrCompile(Spec(n)).ok()) return 1;
                }
                return 0;
              }),
              0);
  }
  stop = true;
  compiler.join();
  (void)KernelCache::Instance().GetOrCompile(Spec(5));
  EXPECT_GE(GetKernelStats().entries, 1);
  EXPECT_FALSE(ListKernels().empty());
  ClearKernels();
  EXPECT_TRUE(ListKernels().empty());
}

}  // namespace
}  // namespace clikart
