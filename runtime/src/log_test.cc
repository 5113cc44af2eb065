#include "log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

#include "environment.h"
#include "fork_testing.h"

namespace clikart {
namespace {

TEST(LogTest, WholeLinesAndSilentByDefault) {
  ::testing::internal::CaptureStderr();
  Log(kLogWarning, "always");
  if (Environment::Get().ok() && Environment::Get()->verbose == 0) Log(kLogKernels, "never");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "clikart: always\n");
}

TEST(LogTest, OneLineThatAPipeTakesWhole) {
  ::testing::internal::CaptureStderr();
  Log(kLogWarning, std::string("a\nb\tc\x7f") + std::string(2 * PIPE_BUF, 'x'));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.size(), static_cast<size_t>(PIPE_BUF));
  EXPECT_TRUE(line.starts_with("clikart: a b c xxx"));
  EXPECT_TRUE(line.ends_with("x...\n"));
}

TEST(LogTest, ABrokenPipeIsNoSignal) {
  EXPECT_EQ(ExitCodeOfChild([] {
              int ends[2];
              if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 9;
              close(ends[0]);
              signal(SIGPIPE, SIG_DFL);
              errno = EDOM;
              Log(kLogWarning, "to nobody");
              sigset_t pending, mask;
              sigpending(&pending);
              pthread_sigmask(SIG_SETMASK, nullptr, &mask);
              return errno == EDOM && sigismember(&pending, SIGPIPE) == 0 && sigismember(&mask, SIGPIPE) == 0 ? 0 : 1;
            }),
            0);
}

TEST(LogTest, ASignalThatWaitedStillWaits) {
  EXPECT_EQ(ExitCodeOfChild([] {
              sigset_t set, pending;
              sigemptyset(&set);
              sigaddset(&set, SIGPIPE);
              pthread_sigmask(SIG_BLOCK, &set, nullptr);
              raise(SIGPIPE);
              Log(kLogWarning, "");
              sigpending(&pending);
              return sigismember(&pending, SIGPIPE) == 1 ? 0 : 1;
            }),
            0);
}

TEST(LogTest, ALimitOfFileSizesIsNoSignal) {
  const std::string path = ::testing::TempDir() + "log_test_limit";
  EXPECT_EQ(ExitCodeOfChild([&] {
              const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
              const rlimit none{0, 0};
              if (file < 0 || dup2(file, STDERR_FILENO) < 0 || setrlimit(RLIMIT_FSIZE, &none) != 0) return 9;
              signal(SIGXFSZ, SIG_DFL);
              Log(kLogWarning, "too much");
              return 0;
            }),
            0);
  unlink(path.c_str());
}

TEST(LogTest, AClosedStandardErrorIsIgnored) {
  EXPECT_EQ(ExitCodeOfChild([] {
              close(STDERR_FILENO);
              Log(kLogWarning, "to nowhere");
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace clikart
