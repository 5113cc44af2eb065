// The process's pool: pthreadpool, which hands out work fastest of all measured, with what it lacks
// (docs/thread-pool.md): an end to its workers' spinning, a second caller, fork, another size.
#include "parallel.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "clikart/runtime.h"
#include "environment.h"
#include "thread_count.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// pthreadpool is not built for the sanitizer, which would miss that a job begins after its caller
// prepared it and ends before the caller goes on.
#define CLIKART_TSAN_ACQUIRE(address) __tsan_acquire(address)
#define CLIKART_TSAN_RELEASE(address) __tsan_release(address)
#else
#define CLIKART_TSAN_ACQUIRE(address)
#define CLIKART_TSAN_RELEASE(address)
#endif

namespace clikart {
namespace {

// How long the parker sleeps between two looks. Workers of an idle pool spin for one to two of these.
constexpr long kParkNanoseconds = 500'000;

// Set while this thread runs a body: a call from inside runs in place.
thread_local bool in_body = false;

struct Job {
  void (*body)(void*, int64_t);
  void* context;
};

void RunItem(void* argument, size_t index) {
  Job* job = static_cast<Job*>(argument);
  CLIKART_TSAN_ACQUIRE(job);
  const bool outer = in_body;
  in_body = true;
  {
    const MxcsrScope scope;
    job->body(job->context, static_cast<int64_t>(index));
  }
  in_body = outer;
  CLIKART_TSAN_RELEASE(job);
}

void NoItem(void*, size_t) {}

// Threads of one size. One caller at a time; a second one is told that the pool is busy.
class Pool {
 public:
  explicit Pool(int threads)
      : threads_(threads),
        // Spinning helps only threads that have a CPU each.
        spins_(threads <= UsableCpus()),
        pool_(pthreadpool_create(static_cast<size_t>(threads))) {
    if (spins_ && pool_ != nullptr) parker_ = std::thread([this] { Park(); });
  }

  ~Pool() {
    if (parker_.joinable()) {
      parker_state_.store(kStop);
      parker_state_.notify_one();
      parker_.join();
    }
    pthreadpool_destroy(pool_);
  }

  int threads() const { return threads_; }

  // False when another caller has it.
  bool TryRun(int64_t count, Job& job) {
    if (pool_ == nullptr || !Acquire()) return false;
    ++jobs_;
    CLIKART_TSAN_RELEASE(&job);
    pthreadpool_parallelize_1d(pool_, RunItem, &job, static_cast<size_t>(count),
                               spins_ ? 0 : PTHREADPOOL_FLAG_YIELD_WORKERS);
    CLIKART_TSAN_ACQUIRE(&job);
    int idle = kIdle;
    const bool woken = spins_ && parker_state_.load(std::memory_order_relaxed) == kIdle &&
                       parker_state_.compare_exchange_strong(idle, kLooking);
    owner_.store(kNobody, std::memory_order_release);
    if (woken) parker_state_.notify_one();
    return true;
  }

 private:
  enum Owner : int { kNobody, kCaller, kParker };
  enum ParkerState : int { kIdle, kLooking, kStop };

  bool Acquire() {
    while (true) {
      int expected = kNobody;
      if (owner_.compare_exchange_weak(expected, kCaller, std::memory_order_acquire)) return true;
      if (expected == kCaller) return false;
      if (expected == kParker) std::this_thread::yield();  // a few microseconds
    }
  }

  // pthreadpool's workers spin for tens of milliseconds after a job. This thread looks twice a
  // millisecond while jobs come; when one interval saw none, it hands out an empty job whose workers
  // go to sleep at once, and sleeps too until the next job.
  void Park() {
    while (true) {
      parker_state_.wait(kIdle);
      for (uint64_t seen = jobs_.load(std::memory_order_relaxed);;) {
        const timespec interval{0, kParkNanoseconds};
        nanosleep(&interval, nullptr);
        if (parker_state_.load() == kStop) return;
        const uint64_t now = jobs_.load(std::memory_order_relaxed);
        int expected = kNobody;
        if (now == seen && owner_.compare_exchange_strong(expected, kParker, std::memory_order_acquire)) {
          pthreadpool_parallelize_1d(pool_, NoItem, nullptr, static_cast<size_t>(threads_),
                                     PTHREADPOOL_FLAG_YIELD_WORKERS);
          int looking = kLooking;  // not over a kStop
          parker_state_.compare_exchange_strong(looking, kIdle);
          owner_.store(kNobody, std::memory_order_release);
          break;
        }
        seen = now;
      }
    }
  }

  const int threads_;
  const bool spins_;
  pthreadpool_t pool_;
  std::atomic<int> owner_{kNobody};
  std::atomic<uint64_t> jobs_{0};
  std::atomic<int> parker_state_{kIdle};
  std::thread parker_;
};

// All that a fork replaces. The child cannot free its parent's: the threads it names do not exist.
struct State {
  std::mutex mutex;            // guards the swap of `pool`
  std::shared_ptr<Pool> pool;  // read under mutex
};

std::atomic<State*> g_state{nullptr};
std::atomic<int> g_wanted{0};  // threads that SetNumThreads asked for; 0 is automatic

int AutomaticThreads() {
  static const int automatic = [] {
    const auto& environment = Environment::Get();
    const int given = environment.ok() ? environment->num_threads.value_or(0) : 0;
    return given > 0 ? given : UsableCpus();
  }();
  return automatic;
}

State& GetState() {
  State* state = g_state.load(std::memory_order_acquire);
  if (state != nullptr) return *state;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { g_state.store(nullptr); });
  (void)registered;
  State* fresh = new State;
  if (g_state.compare_exchange_strong(state, fresh)) return *fresh;
  delete fresh;
  return *state;
}

// The pool of `threads` threads, made where the current one has another size.
std::shared_ptr<Pool> PoolOf(int threads) {
  State& state = GetState();
  std::shared_ptr<Pool> old;  // ends after the lock is free; callers that still use it hold it too
  const std::lock_guard lock(state.mutex);
  if (state.pool == nullptr || state.pool->threads() != threads) {
    old = std::move(state.pool);
    state.pool = std::make_shared<Pool>(threads);
  }
  return state.pool;
}

}  // namespace

void ParallelFor(int64_t count, void (*body)(void* context, int64_t index), void* context) {
  if (count <= 0) return;
  const int threads = count == 1 || in_body ? 1 : GetNumThreads();
  Job job{body, context};
  if (threads > 1 && PoolOf(threads)->TryRun(count, job)) return;
  const MxcsrScope scope;
  for (int64_t i = 0; i < count; ++i) body(context, i);
}

int ParallelWidth() { return in_body ? 1 : GetNumThreads(); }

absl::Status SetNumThreads(int count) {
  if (count < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of threads is 0 (automatic) or positive, but ", count, " was given"));
  }
  const int most = 4 * LogicalCpus();
  if (count > most) {
    Log(0, absl::StrCat("warning: ", count, " threads are more than 4 for each of ", LogicalCpus(), " CPUs; using ",
                        most));
    count = most;
  }
  g_wanted.store(count, std::memory_order_relaxed);
  return absl::OkStatus();
}

int GetNumThreads() {
  const int wanted = g_wanted.load(std::memory_order_relaxed);
  return wanted > 0 ? wanted : AutomaticThreads();
}

}  // namespace clikart
