// Thread pools compared on what a forward asks of one: hand out a job of 20 microseconds to two
// threads, cost nothing when idle, work in a forked child, take another size. docs/thread-pool.md
// holds the figures and the choice.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#ifdef BENCH_PTHREADPOOL
#include <pthreadpool.h>
#endif
#ifdef BENCH_TBB
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif
#ifdef BENCH_OPENMP
#include <omp.h>
#endif

#ifdef BENCH_CLIKART
#include "clikart/runtime.h"
#include "parallel.h"
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kThreads = 2;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void Work(double microseconds) {
  const Clock::time_point start = Clock::now();
  while (MicrosecondsSince(start) < microseconds) {
  }
}

double CpuMilliseconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

class Pool {
 public:
  virtual ~Pool() = default;
  virtual void Resize(int threads) = 0;
  // task(i) for i in [0, count), on as many threads as the pool has.
  virtual void Run(int count, void (*task)(void*, size_t), void* context) = 0;
};

#ifdef BENCH_PTHREADPOOL
class PthreadPool : public Pool {
 public:
  explicit PthreadPool(uint32_t flags) : flags_(flags) {}
  ~PthreadPool() override { pthreadpool_destroy(pool_); }
  void Resize(int threads) override {
    pthreadpool_destroy(pool_);
    pool_ = pthreadpool_create(static_cast<size_t>(threads));
  }
  void Run(int count, void (*task)(void*, size_t), void* context) override {
    pthreadpool_parallelize_1d(pool_, task, context, static_cast<size_t>(count), flags_);
  }

 private:
  uint32_t flags_;
  pthreadpool_t pool_ = nullptr;
};
#endif

#ifdef BENCH_TBB
class TbbPool : public Pool {
 public:
  void Resize(int threads) override { arena_ = std::make_unique<tbb::task_arena>(threads); }
  void Run(int count, void (*task)(void*, size_t), void* context) override {
    arena_->execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<size_t>(0, static_cast<size_t>(count), 1),
          [&](const tbb::blocked_range<size_t>& range) {
            for (size_t i = range.begin(); i != range.end(); ++i) task(context, i);
          },
          tbb::simple_partitioner());
    });
  }

 private:
  std::unique_ptr<tbb::task_arena> arena_;
};
#endif

#ifdef BENCH_OPENMP
class OpenMpPool : public Pool {
 public:
  void Resize(int threads) override { threads_ = threads; }
  void Run(int count, void (*task)(void*, size_t), void* context) override {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int i = 0; i < count; ++i) task(context, static_cast<size_t>(i));
  }

 private:
  int threads_ = 1;
};
#endif

#ifdef BENCH_CLIKART
class ClikartPool : public Pool {
 public:
  void Resize(int threads) override { (void)clikart::SetNumThreads(threads); }
  void Run(int count, void (*task)(void*, size_t), void* context) override {
    clikart::ParallelFor(count, [&](int64_t i) { task(context, static_cast<size_t>(i)); });
  }
};
#endif

void TaskOf(void* context, size_t) { Work(*static_cast<double*>(context)); }

// Time beyond the work itself, with `gap` of sleep before each job.
void PrintHandOut(Pool& pool, const char* label, int rounds, std::chrono::microseconds gap) {
  double work = 20;
  std::vector<double> overhead;
  for (int i = 0; i < rounds; ++i) {
    if (gap.count() > 0) std::this_thread::sleep_for(gap);
    const Clock::time_point start = Clock::now();
    pool.Run(kThreads, TaskOf, &work);
    overhead.push_back(MicrosecondsSince(start) - work);
  }
  std::sort(overhead.begin(), overhead.end());
  std::printf("  %-26s p10 %7.2f us   median %7.2f us   p90 %8.2f us\n", label, overhead[overhead.size() / 10],
              overhead[overhead.size() / 2], overhead[overhead.size() * 9 / 10]);
}

void PrintIdle(Pool& pool) {
  double work = 20;
  pool.Run(kThreads, TaskOf, &work);
  const double start = CpuMilliseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::printf("  CPU used in 500 ms after a job %6.1f ms\n", CpuMilliseconds() - start);
  // A request of 1 ms every 20 ms, as ten launches of 100 us.
  const double pattern = CpuMilliseconds();
  work = 100;
  for (int i = 0; i < 25; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(19));
    for (int j = 0; j < 10; ++j) pool.Run(kThreads, TaskOf, &work);
  }
  std::printf("  CPU of 25 requests of 1 ms, 20 ms apart: %.1f times the work\n",
              (CpuMilliseconds() - pattern) / (25.0 * kThreads));
}

void PrintFork(Pool& pool) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    double work = 1000;
    pool.Run(kThreads, TaskOf, &work);
    pool.Run(kThreads, TaskOf, &work);
    const Clock::time_point last = Clock::now();
    pool.Run(kThreads, TaskOf, &work);
    _exit(MicrosecondsSince(last) < 1.7 * work ? 0 : 1);
  }
  int status = 0;
  for (int i = 0; i < 300; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) {
      const char* answer = !WIFEXITED(status) ? "crashes" : WEXITSTATUS(status) == 0 ? "in parallel" : "on one thread";
      std::printf("  forked child: %s\n", answer);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  std::printf("  forked child: hangs\n");
}

void Measure(const char* name, Pool& pool) {
  std::printf("%s\n", name);
  pool.Resize(1);
  double work = 1;
  pool.Run(1, TaskOf, &work);
  const Clock::time_point start = Clock::now();
  pool.Resize(kThreads);
  pool.Run(kThreads, TaskOf, &work);
  std::printf("  resize and first job %.0f us\n", MicrosecondsSince(start));
  PrintHandOut(pool, "back to back", 3000, std::chrono::microseconds(0));
  PrintHandOut(pool, "after 200 us", 300, std::chrono::microseconds(200));
  PrintHandOut(pool, "after 1 ms", 300, std::chrono::milliseconds(1));
  PrintHandOut(pool, "after 20 ms", 30, std::chrono::milliseconds(20));
  PrintIdle(pool);
  PrintFork(pool);
}

}  // namespace

int main() {
  std::vector<std::pair<std::string, std::unique_ptr<Pool>>> pools;
#ifdef BENCH_CLIKART
  pools.emplace_back("clikart::ParallelFor", std::make_unique<ClikartPool>());
#endif
#ifdef BENCH_PTHREADPOOL
  pools.emplace_back("pthreadpool", std::make_unique<PthreadPool>(0));
  pools.emplace_back("pthreadpool, workers yield", std::make_unique<PthreadPool>(PTHREADPOOL_FLAG_YIELD_WORKERS));
#endif
#ifdef BENCH_TBB
  pools.emplace_back("oneTBB", std::make_unique<TbbPool>());
#endif
#ifdef BENCH_OPENMP
  pools.emplace_back("OpenMP (libgomp)", std::make_unique<OpenMpPool>());
#endif
  for (auto& [name, pool] : pools) {
    Measure(name.c_str(), *pool);
    pool.reset();
  }
  return 0;
}
