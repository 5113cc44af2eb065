// A fork in the middle of the process's first compilation by LLVM.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <variant>

#include "gtest/gtest.h"
#include "llvm_emitter.h"

namespace clikart::codegen {
namespace {

std::atomic<bool> g_armed{false};
std::thread* g_compiles = nullptr;

bool Compiles() {
  ir::KernelSpec spec;
  spec.n = spec.k = 8;
  const auto emitted = LlvmEmitter().Emit(spec, Target{});
  return std::holds_alternative<EmittedKernel>(emitted);
}

// Forks while a thread compiles, which it began to when the fork was already under way; the child compiles too.
// In a process of its own, which has not loaded LLVM yet.
[[noreturn]] void ForkWhileTheFirstOneCompiles() {
  pthread_atfork(
      [] {
        if (!g_armed.exchange(false)) return;
        static std::atomic<bool> begun{false};
        g_compiles = new std::thread([] {
          begun = true;
          Compiles();
        });
        while (!begun) std::this_thread::yield();
        // Loading takes longer than this, and then it is under way.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      },
      nullptr, nullptr);
  g_armed = true;
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(Compiles() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  g_compiles->join();
  _exit(status == 0 ? 0 : 1);
}

TEST(LlvmForkDeathTest, TheChildOfAForkInTheFirstCompilationCompiles) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ForkWhileTheFirstOneCompiles(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace clikart::codegen
