// The process's pool: pthreadpool, which hands out work fastest of all measured, with what it lacks
// (docs/thread-pool.md): an end to its workers' spinning, a second caller, fork, another size.
#include "parallel.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "clikart/runtime.h"
#include "environment.h"
#include "first_use.h"
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

// How long the parker sleeps between two looks. Workers of an idle pool spin for one to two of these. A look takes a
// CPU from a worker for some 10 us, so that it sleeps longer while jobs are longer.
constexpr long kParkNanoseconds = 500'000, kLongestParkNanoseconds = 4'000'000;

// After an interval in which so many jobs began; whether one is under way.
long NextInterval(long interval, uint64_t jobs, bool busy) {
  if (busy && jobs <= 1) return std::min(2 * interval, kLongestParkNanoseconds);
  return busy && jobs <= 4 ? interval : kParkNanoseconds;
}

// Set while this thread runs a body: a call from inside runs in place.
thread_local bool in_body = false;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Job {
  void (*body)(void*, int64_t);
  void* context;
  alignas(64) std::atomic<int64_t> last_end{0};  // when the latest item ended; every thread writes it
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
  job->last_end.store(NowNs(), std::memory_order_relaxed);
  CLIKART_TSAN_RELEASE(job);
}

void NoItem(void*, size_t) {}

// Whether other work is on our CPUs. A pthreadpool job ends when every worker has reported, and one that
// spins is the first that the scheduler takes off a CPU that others want: the caller then waits a
// scheduler's slice, tens of milliseconds. A sleeper is put on a CPU at once when it is woken. So after
// such a wait workers sleep between jobs for a while, for longer each time that it turns out too short.
class Crowd {
 public:
  bool Present() const { return until_ != 0 && NowNs() < until_; }

  // `wait_ns`: from the end of the last item to the end of a job whose workers spin.
  void Observe(int64_t wait_ns) {
    if (wait_ns > kLongNs) {
      pause_ns_ = std::clamp(2 * pause_ns_, kShortestPauseNs, kLongestPauseNs);
      until_ = NowNs() + pause_ns_;
    } else if (until_ != 0 && NowNs() > until_ + pause_ns_) {
      until_ = pause_ns_ = 0;  // as long without it as with it
    }
  }

 private:
  static constexpr int64_t kLongNs = 200'000, kShortestPauseNs = 50'000'000, kLongestPauseNs = 3'000'000'000;
  int64_t until_ = 0, pause_ns_ = 0;
};

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

  // False when another caller has it, or the parker for some microseconds.
  bool TryRun(int64_t count, Job& job) {
    int nobody = kNobody;
    if (pool_ == nullptr || !owner_.compare_exchange_strong(nobody, kCaller, std::memory_order_acquire)) return false;
    const bool spin = spins_ && !crowd_.Present();
    jobs_.store(jobs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    CLIKART_TSAN_RELEASE(&job);
    pthreadpool_parallelize_1d(pool_, RunItem, &job, static_cast<size_t>(count),
                               spin ? 0 : PTHREADPOOL_FLAG_YIELD_WORKERS);
    CLIKART_TSAN_ACQUIRE(&job);
    bool arm = false;
    if (spin) {
      crowd_.Observe(NowNs() - job.last_end.load(std::memory_order_relaxed));
      int idle = kIdle;
      arm = parker_state_.load(std::memory_order_relaxed) == kIdle &&
            parker_state_.compare_exchange_strong(idle, kLooking);
    }
    owner_.store(kNobody, std::memory_order_release);
    if (arm) parker_state_.notify_one();
    return true;
  }

 private:
  enum Owner : int { kNobody, kCaller, kParker };
  enum ParkerState : int { kIdle, kLooking, kStop };

  // pthreadpool's workers spin for tens of milliseconds after a job. This thread looks now and then
  // while jobs come; when one interval saw none, it hands out an empty job whose workers go to sleep
  // at once, and sleeps too until the next job.
  void Park() {
    while (true) {
      parker_state_.wait(kIdle);
      long interval = kParkNanoseconds;
      for (uint64_t seen = jobs_.load(std::memory_order_relaxed);;) {
        const timespec time{0, interval};
        nanosleep(&time, nullptr);
        if (parker_state_.load() == kStop) return;
        const uint64_t now = jobs_.load(std::memory_order_relaxed);
        const bool busy = owner_.load(std::memory_order_relaxed) == kCaller;
        int nobody = kNobody;
        if (now == seen && owner_.compare_exchange_strong(nobody, kParker, std::memory_order_acquire)) {
          pthreadpool_parallelize_1d(pool_, NoItem, nullptr, static_cast<size_t>(threads_),
                                     PTHREADPOOL_FLAG_YIELD_WORKERS);
          int looking = kLooking;  // not over a kStop
          parker_state_.compare_exchange_strong(looking, kIdle);
          owner_.store(kNobody, std::memory_order_release);
          break;
        }
        interval = NextInterval(interval, now - seen, busy);
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
  Crowd crowd_;  // of the owner
  std::thread parker_;
};

// All that a fork replaces. The child cannot free its parent's: the threads it names do not exist.
struct State {
  std::mutex mutex;            // guards the swap of `pool`
  std::shared_ptr<Pool> pool;  // read under mutex
};

std::atomic<State*> g_state{nullptr};
// Registered before main: a handler that a thread registers while another one forks does not run in the child.
[[maybe_unused]] const int g_fork_handler = pthread_atfork(nullptr, nullptr, [] { g_state.store(nullptr); });
std::atomic<int> g_wanted{0};  // threads that SetNumThreads asked for; 0 is automatic

int AutomaticThreads() {
  static constinit FirstUse<const int> automatic;
  return automatic.Get([] {
    const auto& environment = Environment::Get();
    const int given = environment.ok() ? environment->num_threads.value_or(0) : 0;
    return new int(given > 0 ? given : UsableCpus());
  });
}

State& GetState() {
  State* state = g_state.load(std::memory_order_acquire);
  if (state != nullptr) return *state;
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
  Job job{body, context, {}};
  if (threads > 1 && PoolOf(threads)->TryRun(count, job)) return;
  // A busy pool: the bodies are bodies all the same, and what they call runs in place.
  const bool outer = in_body;
  in_body = outer || threads > 1;
  const MxcsrScope scope;
  for (int64_t i = 0; i < count; ++i) body(context, i);
  in_body = outer;
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
