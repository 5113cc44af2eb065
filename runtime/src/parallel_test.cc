#include "parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "clikart/runtime.h"
#include "fork_testing.h"
#include "thread_count.h"

namespace clikart {
namespace {

using ::testing::HasSubstr;

class ParallelTest : public ::testing::Test {
 protected:
  ~ParallelTest() override { (void)SetNumThreads(0); }
};

// True when every index ran exactly once.
bool RunsEachOnce(int64_t count) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
  ParallelFor(count, [&](int64_t i) { runs[static_cast<size_t>(i)].fetch_add(1); });
  for (const auto& run : runs) {
    if (run.load() != 1) return false;
  }
  return true;
}

// Threads of this process, beside the caller, that run or wait for a CPU.
int AwakeThreads() {
  int awake = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const size_t name_end = stat.rfind(") ");  // "pid (name) state ..."
    if (name_end != std::string::npos && stat[name_end + 2] == 'R') ++awake;
  }
  return awake;
}

TEST_F(ParallelTest, EveryIndexOnceAtEverySize) {
  for (const int threads : {1, 2, 3, 8, 2, 1, 5}) {
    ASSERT_TRUE(SetNumThreads(threads).ok());
    EXPECT_EQ(ParallelWidth(), threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) EXPECT_TRUE(RunsEachOnce(count)) << threads << " " << count;
  }
}

TEST_F(ParallelTest, UsesOtherThreads) {
  ASSERT_TRUE(SetNumThreads(2).ok());
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 100 && ids.size() < 2; ++round) {
    ParallelFor(2, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(ids.size(), 2u);
}

TEST_F(ParallelTest, NestedCallsRunInPlace) {
  ASSERT_TRUE(SetNumThreads(2).ok());
  std::atomic<int> inner{0};
  ParallelFor(4, [&](int64_t) {
    EXPECT_EQ(ParallelWidth(), 1);
    const auto here = std::this_thread::get_id();
    ParallelFor(5, [&](int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      inner.fetch_add(1);
    });
  });
  EXPECT_EQ(inner.load(), 20);
  EXPECT_EQ(ParallelWidth(), 2);
}

TEST_F(ParallelTest, ManyCallersWhileTheSizeChanges) {
  std::vector<std::thread> callers;
  std::atomic<bool> stop{false};
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([] {
      for (int round = 0; round < 60; ++round) EXPECT_TRUE(RunsEachOnce(17));
    });
  }
  std::thread resizer([&] {
    for (int i = 0; !stop.load(); ++i) {
      ASSERT_TRUE(SetNumThreads(1 + i % 4).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (std::thread& caller : callers) caller.join();
  stop = true;
  resizer.join();
}

TEST_F(ParallelTest, CallersThatComeAndGo) {
  ASSERT_TRUE(SetNumThreads(2).ok());
  for (int i = 0; i < 20; ++i) std::thread([] { EXPECT_TRUE(RunsEachOnce(9)); }).join();
}

// numerics.md, rule 7.
TEST_F(ParallelTest, EveryThreadRunsUnderTheSameMxcsr) {
  ASSERT_TRUE(SetNumThreads(2).ok());
  const unsigned before = _mm_getcsr();
  const unsigned odd = 0xFFC0;  // flush to zero, denormals are zero, round to zero
  _mm_setcsr(odd);
  std::atomic<int> wrong{0};
  const auto check = [&](int64_t) {
    if ((_mm_getcsr() & ~0x3Fu) != 0x1F80) wrong.fetch_add(1);
  };
  ParallelFor(64, check);
  ParallelFor(1, check);
  const unsigned after = _mm_getcsr();
  {
    const MxcsrScope scope;
    EXPECT_EQ(_mm_getcsr() & ~0x3Fu, 0x1F80u);
  }
  const unsigned restored = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(after & ~0x3Fu, odd);
  EXPECT_EQ(restored & ~0x3Fu, odd);
}

TEST_F(ParallelTest, IdleThreadsSleep) {
  ASSERT_TRUE(SetNumThreads(2).ok());
  EXPECT_TRUE(RunsEachOnce(100));
  // Threads that spin are awake in every look, ones that woke for a moment are not in the next. The bound is
  // there only to end.
  int quiet = 0;
  for (int looks = 0; looks < 5000 && quiet < 20; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    quiet = AwakeThreads() == 0 ? quiet + 1 : 0;
  }
  EXPECT_EQ(quiet, 20);
}

TEST_F(ParallelTest, ForkedChildrenBuildTheirOwnPool) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  ASSERT_TRUE(SetNumThreads(2).ok());
  ASSERT_TRUE(RunsEachOnce(100));
  EXPECT_EQ(ExitCodeOfChild([] {
              if (!RunsEachOnce(100) || !RunsEachOnce(3)) return 1;
              return ExitCodeOfChild([] { return RunsEachOnce(50) ? 0 : 1; });  // and theirs
            }),
            0);
  EXPECT_EQ(ExitCodeOfChild([] { return 0; }), 0);
  EXPECT_TRUE(RunsEachOnce(100));
}

TEST_F(ParallelTest, ForkDuringACall) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  ASSERT_TRUE(SetNumThreads(2).ok());
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) RunsEachOnce(50);
  });
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(ExitCodeOfChild([] { return RunsEachOnce(100) ? 0 : 1; }), 0);
  }
  stop = true;
  busy.join();
}

TEST_F(ParallelTest, ThreadCountRules) {
  EXPECT_EQ(SetNumThreads(-1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(SetNumThreads(3).ok());
  EXPECT_EQ(GetNumThreads(), 3);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(SetNumThreads(1'000'000).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("warning: 1000000 threads are more than"));
  EXPECT_EQ(GetNumThreads(), 4 * LogicalCpus());
  ASSERT_TRUE(SetNumThreads(0).ok());
  EXPECT_GE(GetNumThreads(), 1);
}

TEST(ThreadScratchTest, AlignedGrowingAndItsThreadsOwn) {
  std::byte* small = ThreadScratch(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(ThreadScratch(50), small);
  std::byte* large = ThreadScratch(8 << 20);
  std::memset(large, 1, 8 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 64, 0u);
  EXPECT_EQ(ThreadScratch(100), large);  // kept for the next large one
  std::thread([&] { EXPECT_NE(ThreadScratch(100), large); }).join();
  for (int i = 0; i < 2000; ++i) ThreadScratch(100);  // given back by now
  std::memset(ThreadScratch(100), 2, 100);
  EXPECT_NE(ThreadScratch(0), nullptr);
}

}  // namespace
}  // namespace clikart
