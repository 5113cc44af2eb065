// Runs a function in a forked child, for tests of what fork leaves behind.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

// For tests that fork a process of several threads. The sanitizers' allocators of GCC 12, unlike glibc's,
// are not reset in the child, which may then wait for ever in its first allocation; and ThreadSanitizer
// ends a child that starts a thread.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CLIKART_SKIP_FORK_UNDER_SANITIZERS() GTEST_SKIP() << "the sanitizer's allocator does not survive this fork"
#else
#define CLIKART_SKIP_FORK_UNDER_SANITIZERS() static_cast<void>(0)
#endif

namespace clikart {

// The child's exit code: what `body` returns. -1 when it crashed, -2 when it was still running after
// ten seconds and was ended.
template <typename Body>
int ExitCodeOfChild(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a child of an ended child must not linger and hold its pipes open
    _exit(body());
  }
  for (int i = 0; i < 1000; ++i) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -2;
}

}  // namespace clikart
