#include "isa.h"

#include "clikart/codegen/target.h"

namespace clikart::codegen::llvm_module {

Isa IsaOf(uint32_t features) {
  const auto has = [&](Feature feature) { return (features >> static_cast<int>(feature) & 1) != 0; };
  Isa isa;
  isa.features = "+sse2";
  if (has(Feature::kSse42)) isa.features += ",+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt";
  if (has(Feature::kAvx2)) {
    isa.features += ",+avx,+avx2,+fma,+f16c,+bmi,+bmi2";
    isa.lanes = 8;
    isa.fma = isa.f16c = true;
  }
  if (has(Feature::kAvx512)) {
    isa.features += ",+avx512f,+avx512bw,+avx512vl,+avx512dq";
    isa.lanes = 16;
    isa.masks = true;
  }
  if (has(Feature::kAvxVnni)) isa.features += ",+avxvnni";
  if (has(Feature::kAvx512Vnni)) isa.features += ",+avx512vnni";
  isa.dot = has(Feature::kAvxVnni) || has(Feature::kAvx512Vnni);
  return isa;
}

}  // namespace clikart::codegen::llvm_module
