#include "jobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

namespace clikart {
namespace {

TEST(RunJobs, RunsEachOnceAndTellsTheCaller) {
  for (const int threads : {0, 1, 2, 9}) {
    std::atomic<int64_t> sum{0};
    std::set<int64_t> told;
    const std::thread::id caller = std::this_thread::get_id();
    EXPECT_TRUE(RunJobs(
        100, threads, {}, [&](int64_t i) { sum += i; },
        [&](int64_t i) {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          EXPECT_TRUE(told.insert(i).second);
          return true;
        }));
    EXPECT_EQ(sum, 4950);
    EXPECT_EQ(told.size(), 100u);
  }
  EXPECT_TRUE(RunJobs(0, 4, {}, [](int64_t) { FAIL(); }, [](int64_t) { return false; }));
}

TEST(RunJobs, AFalseAnswerEndsIt) {
  for (const int threads : {1, 4}) {
    std::atomic<int64_t> begun{0};
    int64_t told = 0;
    EXPECT_FALSE(RunJobs(
        100000, threads, {},
        [&](int64_t) {
          ++begun;
          std::this_thread::yield();
        },
        [&](int64_t) { return ++told < 3; }));
    EXPECT_EQ(told, 3);
    EXPECT_GE(begun, 3);
    EXPECT_LE(begun, 2 + threads);  // nobody runs ahead of what the caller has heard of
  }
  // Also when it is the last one's.
  EXPECT_FALSE(RunJobs(1, 1, {}, [](int64_t) {}, [](int64_t) { return false; }));
}

TEST(RunJobs, AStopRequestEndsIt) {
  for (const int threads : {1, 4}) {
    std::stop_source stop;
    std::atomic<int64_t> begun{0}, late{0};
    EXPECT_FALSE(RunJobs(
        100000, threads, stop.get_token(),
        [&](int64_t) {
          if (stop.stop_requested()) ++late;
          if (++begun == 10) stop.request_stop();
        },
        [](int64_t) { return true; }));
    EXPECT_GE(begun, 10);
    EXPECT_LT(late, threads);  // one at most on each other thread
  }
}

}  // namespace
}  // namespace clikart
