#include "process_hooks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "first_use.h"
#include "fork_testing.h"

namespace clikart {
namespace {

// Its threads outlive the call, and run code that must not go.
TEST(ProcessHooksTest, UnloadingLeavesRunningThreadsTheirCode) {
  for (int i = 0; i < 3; ++i) {
    void* const library = dlopen(CLIKART_UNLOAD_TESTING, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto leave = reinterpret_cast<bool (*)()>(dlsym(library, "LeaveAThreadAtWork"));
    ASSERT_NE(leave, nullptr);
    EXPECT_TRUE(leave());
    EXPECT_EQ(dlclose(library), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(FirstUseTest, MadeOnceByManyThreads) {
  FirstUse<const int> value;
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] { EXPECT_EQ(value.Get([&] { return new int(made.fetch_add(1) + 7); }), 7); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  delete value.Peek();
}

TEST(FirstUseTest, AValueMayNeedAnother) {
  FirstUse<const int> outer, inner;
  EXPECT_EQ(outer.Get([&] { return new int(inner.Get([] { return new int(1); }) + 1); }), 2);
  delete outer.Peek();
  delete inner.Peek();
}

TEST(FirstUseTest, AForkWaitsForTheMaking) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  FirstUse<const int> value;
  std::atomic<bool> making{false};
  std::thread maker([&] {
    (void)value.Get([&] {
      making = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return new int(7);
    });
  });
  while (!making) std::this_thread::yield();
  EXPECT_EQ(ExitCodeOfChild([&] {
              const bool made = value.Peek() != nullptr;
              return made && value.Get([] { return new int(8); }) == 7 ? 0 : 1;
            }),
            0);
  maker.join();
  FirstUse<const int> later;  // the lock is free again, in the child too
  EXPECT_EQ(ExitCodeOfChild([&] {
              int seen = 0;
              std::thread([&] { seen = later.Get([] { return new int(9); }); }).join();
              return seen == 9 ? 0 : 1;
            }),
            0);
  delete value.Peek();
}

}  // namespace
}  // namespace clikart
