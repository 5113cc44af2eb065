// CPUs as their makers document them, for tests: the words of CPUID that Detect reads, XCR0 as Linux sets it
// and a system that lets the process use tiles. Bits of other features are left out.
#pragma once

#include "clikart/codegen/target.h"

namespace clikart::codegen {

inline CpuidRecord Nehalem() {
  CpuidRecord cpuid;
  // SSE3, SSSE3, SSE4.1, SSE4.2, POPCNT.
  cpuid.leaf1_ecx = 1u << 0 | 1u << 9 | 1u << 19 | 1u << 20 | 1u << 23;
  return cpuid;
}

inline CpuidRecord Haswell() {
  CpuidRecord cpuid = Nehalem();
  cpuid.leaf1_ecx |= 1u << 12 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29;  // FMA XSAVE OSXSAVE AVX F16C
  cpuid.leaf7_ebx = 1u << 3 | 1u << 5 | 1u << 8;                            // BMI1 AVX2 BMI2
  cpuid.xcr0 = 0x7;
  return cpuid;
}

inline CpuidRecord Zen3() {
  CpuidRecord cpuid = Haswell();
  cpuid.leaf7_ebx |= 1u << 19 | 1u << 29;  // ADX SHA
  cpuid.leaf7_ecx = 1u << 9 | 1u << 10;    // VAES VPCLMULQDQ
  cpuid.xcr0 = 0x207;                      // with protection keys
  return cpuid;
}

inline CpuidRecord AlderLake() {
  CpuidRecord cpuid = Zen3();
  cpuid.leaf7_1_eax = 1u << 4;  // AVX-VNNI
  return cpuid;
}

inline CpuidRecord SkylakeX() {
  CpuidRecord cpuid = Haswell();
  cpuid.leaf7_ebx |= 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F DQ CD BW VL
  cpuid.xcr0 = 0x2e7;
  return cpuid;
}

inline CpuidRecord IceLakeServer() {
  CpuidRecord cpuid = SkylakeX();
  cpuid.leaf7_ebx |= 1u << 21;                                           // IFMA
  cpuid.leaf7_ecx = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;  // VBMI VBMI2 VNNI BITALG VPOPCNTDQ
  return cpuid;
}

inline CpuidRecord Zen4() {
  CpuidRecord cpuid = IceLakeServer();
  cpuid.leaf7_1_eax = 1u << 5;  // AVX512-BF16
  return cpuid;
}

inline CpuidRecord Zen5() {
  CpuidRecord cpuid = Zen4();
  cpuid.leaf7_1_eax |= 1u << 4;  // AVX-VNNI
  cpuid.leaf7_edx |= 1u << 8;    // VP2INTERSECT
  return cpuid;
}

inline CpuidRecord SapphireRapids() {
  CpuidRecord cpuid = IceLakeServer();
  cpuid.leaf7_edx |= 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;  // AMX-BF16 AVX512-FP16 AMX-TILE AMX-INT8
  cpuid.leaf7_1_eax = 0x1c30;                                    // AVX-VNNI AVX512-BF16, short string operations
  cpuid.leaf1d_eax = 1;
  cpuid.palette_eax = 0x0400'2000;  // 1024 bytes a tile, 8192 in all
  cpuid.palette_ebx = 0x0008'0040;  // eight tiles, rows of 64 bytes
  cpuid.palette_ecx = 16;           // rows
  cpuid.leaf1e_ebx = 0x4010;        // products of 16 rows of B by 64 bytes
  cpuid.xcr0 = 0x600e7;
  cpuid.tile_permission = true;
  return cpuid;
}

inline CpuidRecord GraniteRapids() {
  CpuidRecord cpuid = SapphireRapids();
  cpuid.leaf7_1_eax |= 1u << 21;  // AMX-FP16
  return cpuid;
}

}  // namespace clikart::codegen
