#include "owners.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace clikart::python {
namespace {

using Release = std::pair<void (*)(void*), void*>;

struct Waiting {
  std::mutex mutex;
  std::vector<Release> releases;
  std::atomic<bool> any{false};
};

Waiting& TheWaiting() {
  static Waiting& waiting = *new Waiting;  // used by owners that outlive static destruction
  return waiting;
}

// Held over a fork: a drop on another thread must not leave the child a locked one.
[[maybe_unused]] const int g_fork_handlers = pthread_atfork(
    [] { TheWaiting().mutex.lock(); }, [] { TheWaiting().mutex.unlock(); }, [] { TheWaiting().mutex.unlock(); });

// An interpreter that ends, ends the threads that ask for its lock (before Python 3.14), by an exception that would
// pass through destructors and locks of C++. Such a thread sleeps instead until the process has ended.
template <typename Take>
auto TakeGil(Take take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    while (true) pause();
  }
}

int RunWaiting(void*) {
  Waiting& waiting = TheWaiting();
  if (!waiting.any.load(std::memory_order_acquire)) return 0;
  std::vector<Release> releases;
  {
    std::lock_guard lock(waiting.mutex);
    releases.swap(waiting.releases);
    waiting.any.store(false, std::memory_order_release);
  }
  for (const auto& [release, context] : releases) release(context);
  return 0;
}

void RunOrWait(void (*release)(void*), void* context) {
  if (!Py_IsInitialized()) return;
  if (PyGILState_Check()) {
    release(context);
    return;
  }
  Waiting& waiting = TheWaiting();
  {
    std::lock_guard lock(waiting.mutex);
    waiting.releases.emplace_back(release, context);
    waiting.any.store(true, std::memory_order_release);
  }
  // A full queue is no loss: whoever takes the GIL back next runs what waits.
  Py_AddPendingCall(RunWaiting, nullptr);
}

}  // namespace

std::shared_ptr<void> Owner(void (*release)(void*), void* context) {
  return {context, [release](void* p) { RunOrWait(release, p); }};
}

std::shared_ptr<void> Owner(py::object object) {
  return Owner([](void* p) { Py_DECREF(static_cast<PyObject*>(p)); }, object.release().ptr());
}

ReleasedGil::~ReleasedGil() {
  TakeGil([this] { PyEval_RestoreThread(state_); });
  RunWaiting(nullptr);
}

HeldGil::HeldGil() : state_(TakeGil(&PyGILState_Ensure)) {}

}  // namespace clikart::python
