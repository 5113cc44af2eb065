#include "dot_limits.h"

#include "limits.h"

namespace clikart::bench {
namespace {

constexpr int64_t kRounds = 4'000'000;

// Twelve chains of sums hide the latency of any CPU that has the instruction; the values stay zero.
#define CLEAR(i) "vxorps %%xmm" #i ", %%xmm" #i ", %%xmm" #i "\n\t"
#define LOOP(step)                                                                                                     \
  __asm__ volatile(CLEAR(0) CLEAR(1) CLEAR(2) CLEAR(3) CLEAR(4) CLEAR(5) CLEAR(6) CLEAR(7) CLEAR(8) CLEAR(9) CLEAR(10) \
                       CLEAR(11) CLEAR(12) "1:\n\t" step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7)    \
                           step(8) step(9) step(10) step(11) "dec %0\n\t jnz 1b\n\t vzeroupper"                        \
                   : "+r"(loops)                                                                                       \
                   :                                                                                                   \
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                     "xmm12", "xmm13", "cc")
#define VNNI512(i) "vpdpbusd %%zmm12, %%zmm12, %%zmm" #i "\n\t"
#define VNNI256(i) "%{vex%} vpdpbusd %%ymm12, %%ymm12, %%ymm" #i "\n\t"
#define BF16(i) "vdpbf16ps %%zmm12, %%zmm12, %%zmm" #i "\n\t"
#define WORDS512(i) "vpmaddwd %%zmm12, %%zmm12, %%zmm13\n\t vpaddd %%zmm13, %%zmm" #i ", %%zmm" #i "\n\t"
#define WORDS256(i) "vpmaddwd %%ymm12, %%ymm12, %%ymm13\n\t vpaddd %%ymm13, %%ymm" #i ", %%ymm" #i "\n\t"
void RunVnni512(int64_t loops) { LOOP(VNNI512); }
void RunVnni256(int64_t loops) { LOOP(VNNI256); }
void RunBf16(int64_t loops) { LOOP(BF16); }
void RunWords512(int64_t loops) { LOOP(WORDS512); }
void RunWords256(int64_t loops) { LOOP(WORDS256); }
#undef VNNI512
#undef VNNI256
#undef BF16
#undef WORDS512
#undef WORDS256
#undef LOOP
#undef CLEAR

constexpr int kSteps = 12;

constexpr DotPeak kVnni512 = {"vpdpbusd zmm", kSteps * 16 * 8, &RunVnni512};
constexpr DotPeak kVnni256 = {"vpdpbusd ymm", kSteps * 8 * 8, &RunVnni256};
constexpr DotPeak kBf16 = {"vdpbf16ps zmm", kSteps * 16 * 4, &RunBf16};
constexpr DotPeak kWords512 = {"vpmaddwd zmm", kSteps * 16 * 4, &RunWords512};
constexpr DotPeak kWords256 = {"vpmaddwd ymm", kSteps * 8 * 4, &RunWords256};

}  // namespace

DotPeak IntegerPeakOf(const codegen::Target& target) {
  using codegen::Feature;
  if (target.Has(Feature::kAvx512Vnni)) return kVnni512;
  if (target.Has(Feature::kAvxVnni)) return kVnni256;
  return target.Has(Feature::kAvx512) ? kWords512 : kWords256;
}

std::optional<DotPeak> Bf16PeakOf(const codegen::Target& target) {
  if (!target.Has(codegen::Feature::kAvx512Bf16)) return std::nullopt;
  return kBf16;
}

double OpsPerSecond(const DotPeak& peak, int threads) {
  const double seconds = SecondsOnThreads(threads, [&](int) { peak.run(kRounds); });
  return static_cast<double>(threads) * static_cast<double>(kRounds * peak.ops) / seconds;
}

}  // namespace clikart::bench
