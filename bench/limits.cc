#include "limits.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace clikart::bench {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;
constexpr int64_t kFmaLoops = 4'000'000;
constexpr int kFmasPerLoop = 24;

// Twelve chains hide the latency of any CPU that has the instruction; the values stay zero.
#define FMA256(i) "vfmadd231ps %%ymm12, %%ymm12, %%ymm" #i "\n\t"
#define FMA512(i) "vfmadd231ps %%zmm12, %%zmm12, %%zmm" #i "\n\t"
#define CLEAR(i) "vxorps %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define TWELVE(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define RUN_FMAS(fma)                                                                                                  \
  __asm__ volatile(TWELVE(CLEAR) CLEAR(12) "1:\n\t" TWELVE(fma) TWELVE(fma) "dec %0\n\t jnz 1b\n\t vzeroupper"         \
                   : "+r"(loops)                                                                                       \
                   :                                                                                                   \
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                     "xmm12", "cc")
void RunFmas256(int64_t loops) { RUN_FMAS(FMA256); }
void RunFmas512(int64_t loops) { RUN_FMAS(FMA512); }
#undef RUN_FMAS
#undef TWELVE
#undef CLEAR
#undef FMA512
#undef FMA256

#define READ(r)                                                             \
  "vmovups (" r "), %%ymm0\n\t vmovups 32(" r "), %%ymm1\n\t vmovups 64(" r \
  "), %%ymm2\n\t"                                                           \
  "vmovups 96(" r "), %%ymm3\n\t sub $-128, " r "\n\t"
void ReadOneStream(const std::byte* from, size_t bytes) {
  size_t loops = bytes / 128;
  __asm__ volatile("1:\n\t" READ("%0") "dec %1\n\t jnz 1b\n\t vzeroupper"
                   : "+r"(from), "+r"(loops)
                   :
                   : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}

void ReadFourStreams(const std::byte* from, size_t bytes) {
  const std::byte* a = from;
  const std::byte* b = a + bytes / 4;
  const std::byte* c = b + bytes / 4;
  const std::byte* d = c + bytes / 4;
  size_t loops = bytes / 4 / 128;
  __asm__ volatile("1:\n\t" READ("%0") READ("%1") READ("%2") READ("%3") "dec %4\n\t jnz 1b\n\t vzeroupper"
                   : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(loops)
                   :
                   : "xmm0", "xmm1", "xmm2", "xmm3", "cc", "memory");
}
#undef READ

// The calling thread on the `index`-th of the CPUs it may use: a limit is no place for the scheduler to
// put two threads on one.
void Pin(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

double Now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

double Seconds(int threads, const std::function<void()>& job) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double start = Now(clock);
  job();
  return Now(clock) - start;
}

double SecondsOnThreads(int threads, const std::function<void(int)>& job) {
  if (threads == 1) return Seconds(1, [&] { job(0); });
  std::barrier together(threads);
  std::vector<double> starts(static_cast<size_t>(threads)), ends(static_cast<size_t>(threads));
  std::vector<std::thread> crew;
  for (int i = 0; i < threads; ++i) {
    crew.emplace_back([&, i] {
      Pin(i);
      together.arrive_and_wait();
      starts[static_cast<size_t>(i)] = Now(CLOCK_MONOTONIC);
      job(i);
      ends[static_cast<size_t>(i)] = Now(CLOCK_MONOTONIC);
    });
  }
  for (std::thread& thread : crew) thread.join();
  return *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
}

Limits::Limits(int widest_fma) : widest_fma_(widest_fma) {
  void* const memory = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, kBufferBytes, MADV_HUGEPAGE);  // the limit has no page walks in it
  std::memset(memory, 1, kBufferBytes);          // pages of their own, not the shared zero page
  buffer_ = static_cast<std::byte*>(memory);
}

Limits::~Limits() { munmap(buffer_, kBufferBytes); }

double Limits::FlopsPerSecond(int threads) const {
  const int flops = widest_fma_ == 512 ? 32 : 16;
  const auto run = widest_fma_ == 512 ? &RunFmas512 : &RunFmas256;
  const double seconds = SecondsOnThreads(threads, [run](int) { run(kFmaLoops); });
  return static_cast<double>(threads) * kFmaLoops * kFmasPerLoop * flops / seconds;
}

double Limits::BytesPerSecond(int threads) const {
  const size_t share = kBufferBytes / static_cast<size_t>(threads);
  double best = 0;
  for (const auto read : {&ReadOneStream, &ReadFourStreams}) {
    const auto job = [&](int i) { read(buffer_ + static_cast<size_t>(i) * share, share); };
    const double seconds = SecondsOnThreads(threads, job);
    best = std::max(best, static_cast<double>(kBufferBytes) / seconds);
  }
  return best;
}

}  // namespace clikart::bench
