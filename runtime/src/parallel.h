// Work on all threads: one process-wide pool, sized by SetNumThreads, rebuilt after fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace clikart {

// Calls body(context, index) for index in [0, count), on this thread and the pool's, each under
// MXCSR 0x1F80 (the caller's value is restored). Returns when all are done. From inside a body, or
// with one thread, the calls run here. Any number of threads may call at once.
void ParallelFor(int64_t count, void (*body)(void* context, int64_t index), void* context);

template <typename F>
void ParallelFor(int64_t count, F&& f) {
  using Body = std::remove_cvref_t<F>;
  void (*body)(void*, int64_t) = [](void* context, int64_t index) { (*static_cast<Body*>(context))(index); };
  ParallelFor(count, body, const_cast<Body*>(std::addressof(f)));
}

// Threads that a ParallelFor would use now.
int ParallelWidth();

// 64-byte aligned memory of this thread, at least `bytes`, valid until this thread's next call. Grows
// as needed and is given back when a request is much smaller than what is held.
std::byte* ThreadScratch(size_t bytes);

// The same for a launch of this thread, which all threads may use: valid until its next launch.
std::byte* LaunchScratch(size_t bytes);

// Puts MXCSR to 0x1F80 (round to nearest, no flush to zero, all exceptions masked) while it lives.
class MxcsrScope {
 public:
  MxcsrScope();
  ~MxcsrScope();
  MxcsrScope(const MxcsrScope&) = delete;
  MxcsrScope& operator=(const MxcsrScope&) = delete;

 private:
  unsigned saved_;
  bool changed_;
};

}  // namespace clikart
