#include "owners.h"

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
  PyEval_RestoreThread(state_);
  RunWaiting(nullptr);
}

}  // namespace clikart::python
