// The peaks of instructions that multiply several narrow numbers of a lane at once.
#pragma once

#include <cstdint>
#include <optional>

#include "clikart/codegen/target.h"

namespace clikart::bench {

struct DotPeak {
  const char* name;
  int64_t ops;  // of one round of independent instructions; a multiply-add counts as two
  void (*run)(int64_t rounds);
};
// What kernels for `target` multiply int8 codes with: vpdpbusd, or vpmaddwd over codes that are widened to 16 bits.
DotPeak IntegerPeakOf(const codegen::Target& target);
// vdpbf16ps, where the target has it.
std::optional<DotPeak> Bf16PeakOf(const codegen::Target& target);

// One measurement of some ten milliseconds; take it next to what is compared with it.
double OpsPerSecond(const DotPeak& peak, int threads);

}  // namespace clikart::bench
