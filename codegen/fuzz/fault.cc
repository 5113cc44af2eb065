#include "fault.h"

#include <array>
#include <csetjmp>
#include <csignal>
#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "absl/strings/str_cat.h"

namespace clikart::codegen {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

sigjmp_buf before_call;
volatile int caught = 0;
void* volatile touched = nullptr;

void OnSignal(int signal, siginfo_t* info, void*) {
  caught = signal;
  touched = info->si_addr;
  siglongjmp(before_call, 1);
}

std::string Describe() {
  const char* const name = caught == SIGSEGV  ? "SIGSEGV"
                           : caught == SIGBUS ? "SIGBUS"
                           : caught == SIGILL ? "SIGILL"
                                              : "SIGFPE";
  return absl::StrCat(name, " at 0x", absl::Hex(reinterpret_cast<uintptr_t>(touched)));
}

// What a fault leaves behind is no leak to report.
#ifdef __SANITIZE_ADDRESS__
using MayLeak = __lsan::ScopedDisabler;
#else
struct MayLeak {};
#endif

}  // namespace

std::string CatchFault(absl::FunctionRef<void()> call) {
  std::array<struct sigaction, kSignals.size()> before;
  struct sigaction action = {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before[i]);
  [[maybe_unused]] const MayLeak may_leak;
  const bool came_back = sigsetjmp(before_call, 1) == 0;
  if (came_back) call();
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
  return came_back ? std::string() : Describe();
}

}  // namespace clikart::codegen
