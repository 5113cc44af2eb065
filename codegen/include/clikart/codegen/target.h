// The CPU that code is generated for: one value, made from CPUID and XCR0, never from a CPU name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace clikart::codegen {

// Ordered: a level has everything that the levels before it have. Later ISAs are added here.
enum class IsaLevel : uint8_t { kBaseline, kAvx2 };  // kAvx2: AVX2 + FMA + F16C

std::span<const IsaLevel> AllIsaLevels();                       // lowest first
std::string_view Name(IsaLevel level);                          // "baseline", "avx2"
absl::StatusOr<IsaLevel> ParseIsaLevel(std::string_view text);  // the error lists the levels

// What CPUID and XGETBV said; injectable, so that tests can play other machines.
struct CpuidRecord {
  uint32_t leaf1_ecx = 0, leaf1_edx = 0;
  uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  uint64_t xcr0 = 0;  // 0 where OSXSAVE is clear
  static CpuidRecord Host();
};

struct Target {
  IsaLevel isa = IsaLevel::kBaseline;
  std::string ToString() const { return std::string(Name(isa)); }
  friend bool operator==(const Target&, const Target&) = default;
};

// The widest level that CPU and OS both offer, and not above `cap`.
Target Detect(const CpuidRecord& cpuid, IsaLevel cap);

}  // namespace clikart::codegen
