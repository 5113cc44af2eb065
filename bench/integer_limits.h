// The peak of multiplying int8 codes.
#pragma once

#include <cstdint>

#include "clikart/codegen/target.h"

namespace clikart::bench {

// The widest instruction for int8 codes: vpdpbusd, or vpmaddwd over codes that are widened to 16 bits.
struct IntegerPeak {
  const char* name;
  int64_t ops;  // of one round of independent instructions; a multiply-add counts as two
  void (*run)(int64_t rounds);
};
// What kernels for `target` multiply with.
IntegerPeak IntegerPeakOf(const codegen::Target& target);

// One measurement of some ten milliseconds; take it next to what is compared with it.
double IntegerOpsPerSecond(const IntegerPeak& peak, int threads);

}  // namespace clikart::bench
