#include "clikart/codegen/target.h"

#include <cpuid.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace clikart::codegen {
namespace {

constexpr std::array kLevels = {IsaLevel::kBaseline, IsaLevel::kAvx2};

constexpr uint32_t Bit(int position) { return uint32_t{1} << position; }

// CPUID leaf 1, ECX.
constexpr uint32_t kFma = Bit(12);
constexpr uint32_t kOsxsave = Bit(27);
constexpr uint32_t kAvx = Bit(28);
constexpr uint32_t kF16c = Bit(29);
// CPUID leaf 7, EBX.
constexpr uint32_t kAvx2 = Bit(5);
// XCR0: the system saves xmm and the upper halves of ymm.
constexpr uint64_t kYmmState = 0b110;

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool HasAvx2(const CpuidRecord& cpuid) {
  constexpr uint32_t leaf1 = kFma | kOsxsave | kAvx | kF16c;
  return (cpuid.leaf1_ecx & leaf1) == leaf1 && (cpuid.leaf7_ebx & kAvx2) != 0 && (cpuid.xcr0 & kYmmState) == kYmmState;
}

}  // namespace

std::span<const IsaLevel> AllIsaLevels() { return kLevels; }

std::string_view Name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kBaseline:
      return "baseline";
    case IsaLevel::kAvx2:
      return "avx2";
  }
  return "unknown";
}

absl::StatusOr<IsaLevel> ParseIsaLevel(std::string_view text) {
  std::string names;
  for (const IsaLevel level : kLevels) {
    if (Name(level) == text) return level;
    names.append(names.empty() ? "" : ", ").append(Name(level));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown ISA level \"", std::string(text), "\"; one of: ", names));
}

CpuidRecord CpuidRecord::Host() {
  CpuidRecord record;
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    record.leaf1_ecx = ecx;
    record.leaf1_edx = edx;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    record.leaf7_ebx = ebx;
    record.leaf7_ecx = ecx;
    record.leaf7_edx = edx;
  }
  if ((record.leaf1_ecx & kOsxsave) != 0) record.xcr0 = ReadXcr0();
  return record;
}

Target Detect(const CpuidRecord& cpuid, IsaLevel cap) {
  Target target;
  if (HasAvx2(cpuid) && cap >= IsaLevel::kAvx2) target.isa = IsaLevel::kAvx2;
  return target;
}

}  // namespace clikart::codegen
