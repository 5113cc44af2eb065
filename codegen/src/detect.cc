#include "detect.h"

#include <array>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace clikart::codegen {
namespace {

// One bit of CPUID.
struct CpuidBit {
  const char* name;
  uint32_t CpuidRecord::* word;
  int position;

  bool In(const CpuidRecord& cpuid) const { return (cpuid.*word >> position & 1) != 0; }
};

// XCR0: what the system saves and restores.
struct State {
  const char* name;
  uint64_t mask;
};
constexpr State kYmm = {"ymm", 0b110};           // xmm and the upper halves of ymm
constexpr State kZmm = {"zmm", 0b1110'0110};     // and opmasks, upper halves of zmm, zmm16 to zmm31
constexpr State kTiles = {"tiles", 0b11 << 17};  // configuration and data

constexpr auto kEcx1 = &CpuidRecord::leaf1_ecx;
constexpr auto kEbx7 = &CpuidRecord::leaf7_ebx;
constexpr auto kEcx7 = &CpuidRecord::leaf7_ecx;
constexpr auto kEdx7 = &CpuidRecord::leaf7_edx;
constexpr auto kEax71 = &CpuidRecord::leaf7_1_eax;

constexpr CpuidBit kOsxsave = {"osxsave", kEcx1, 27};
constexpr CpuidBit kAmxTile = {"amx_tile", kEdx7, 24};

constexpr std::array kSse42Bits = {CpuidBit{"sse3", kEcx1, 0}, CpuidBit{"ssse3", kEcx1, 9},
                                   CpuidBit{"sse4_1", kEcx1, 19}, CpuidBit{"sse4_2", kEcx1, 20},
                                   CpuidBit{"popcnt", kEcx1, 23}};
constexpr std::array kAvx2Bits = {kOsxsave,
                                  CpuidBit{"avx", kEcx1, 28},
                                  CpuidBit{"fma", kEcx1, 12},
                                  CpuidBit{"f16c", kEcx1, 29},
                                  CpuidBit{"avx2", kEbx7, 5},
                                  CpuidBit{"bmi1", kEbx7, 3},
                                  CpuidBit{"bmi2", kEbx7, 8}};
constexpr std::array kAvxVnniBits = {CpuidBit{"avx_vnni", kEax71, 4}};
constexpr std::array kAvx512Bits = {CpuidBit{"avx512f", kEbx7, 16}, CpuidBit{"avx512bw", kEbx7, 30},
                                    CpuidBit{"avx512vl", kEbx7, 31}, CpuidBit{"avx512dq", kEbx7, 17}};
constexpr std::array kAvx512VnniBits = {CpuidBit{"avx512_vnni", kEcx7, 11}};
constexpr std::array kAvx512Bf16Bits = {CpuidBit{"avx512_bf16", kEax71, 5}};
constexpr std::array kAvx512Fp16Bits = {CpuidBit{"avx512_fp16", kEdx7, 23}};
constexpr std::array kAmxInt8Bits = {kAmxTile, CpuidBit{"amx_int8", kEdx7, 25}};
constexpr std::array kAmxBf16Bits = {kAmxTile, CpuidBit{"amx_bf16", kEdx7, 22}};
constexpr std::array kAmxFp16Bits = {kAmxTile, CpuidBit{"amx_fp16", kEax71, 21}};

// What a feature takes: everything that the feature below it takes, these bits, this state.
struct Rule {
  Feature feature;
  Feature below;  // itself for the lowest
  std::span<const CpuidBit> bits;
  State state;
  bool tiles = false;
};
constexpr auto kRules = std::to_array<Rule>({
    {Feature::kSse42, Feature::kSse42, kSse42Bits, {}},
    {Feature::kAvx2, Feature::kSse42, kAvx2Bits, kYmm},
    {Feature::kAvxVnni, Feature::kAvx2, kAvxVnniBits, kYmm},
    {Feature::kAvx512, Feature::kAvx2, kAvx512Bits, kZmm},
    {Feature::kAvx512Vnni, Feature::kAvx512, kAvx512VnniBits, kZmm},
    {Feature::kAvx512Bf16, Feature::kAvx512, kAvx512Bf16Bits, kZmm},
    {Feature::kAvx512Fp16, Feature::kAvx512, kAvx512Fp16Bits, kZmm},
    {Feature::kAmxInt8, Feature::kAvx512, kAmxInt8Bits, kTiles, true},
    {Feature::kAmxBf16, Feature::kAvx512, kAmxBf16Bits, kTiles, true},
    {Feature::kAmxFp16, Feature::kAvx512, kAmxFp16Bits, kTiles, true},
});
constexpr bool FollowsTheEnum(std::span<const Rule> rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].feature != static_cast<Feature>(i)) return false;
  }
  return rules.size() == kFeatureCount;
}
static_assert(FollowsTheEnum(kRules), "a feature has no rule, or not in its place");

// The kernels are made for eight tiles of 16 rows by 64 bytes and products over 64 bytes of depth.
bool HasKnownTiles(const CpuidRecord& cpuid) {
  const uint32_t bytes_per_tile = cpuid.palette_eax >> 16, tiles = cpuid.palette_ebx >> 16;
  const uint32_t bytes_per_row = cpuid.palette_ebx & 0xffff, rows = cpuid.palette_ecx & 0xffff;
  const uint32_t depth = cpuid.leaf1e_ebx & 0xff, width = cpuid.leaf1e_ebx >> 8 & 0xffff;
  return cpuid.leaf1d_eax >= 1 && bytes_per_tile == 1024 && tiles == 8 && bytes_per_row == 64 && rows == 16 &&
         depth == 16 && width == 64;
}

enum class Consent : uint8_t { kCounts, kIgnored };

// The first thing that a feature lacks; empty where it lacks nothing.
std::string Lacks(const CpuidRecord& cpuid, Feature feature, Consent consent = Consent::kCounts) {
  const Rule& rule = kRules[static_cast<size_t>(feature)];
  if (rule.below != feature) {
    if (std::string below = Lacks(cpuid, rule.below); !below.empty()) return below;
  }
  for (const CpuidBit& bit : rule.bits) {
    if (!bit.In(cpuid)) return bit.name;
  }
  if ((cpuid.xcr0 & rule.state.mask) != rule.state.mask) return absl::StrCat("XCR0 state of ", rule.state.name);
  if (!rule.tiles) return {};
  if (!HasKnownTiles(cpuid)) return "tiles of a known shape";
  if (consent == Consent::kCounts && !cpuid.tile_permission.value_or(false)) return "permission for tile data";
  return {};
}

}  // namespace

Feature Below(Feature feature) { return kRules[static_cast<size_t>(feature)].below; }

bool HasOsxsave(const CpuidRecord& cpuid) { return kOsxsave.In(cpuid); }

bool OnlyTilePermissionLacks(const CpuidRecord& cpuid) {
  for (const Rule& rule : kRules) {
    if (rule.tiles && Lacks(cpuid, rule.feature, Consent::kIgnored).empty()) return true;
  }
  return false;
}

Target Detect(const CpuidRecord& cpuid, IsaLevel cap) {
  Target target;
  for (const Rule& rule : kRules) {
    if (LevelOf(rule.feature) <= cap && Lacks(cpuid, rule.feature).empty()) target.features.Add(rule.feature);
  }
  return target;
}

std::string Describe(const CpuidRecord& cpuid, const Target& target) {
  std::string text = absl::StrFormat(
      "CPUID 1: ecx %08x, edx %08x\n"
      "CPUID 7.0: ebx %08x, ecx %08x, edx %08x\n"
      "CPUID 7.1: eax %08x\n"
      "CPUID 1d: palettes %u; palette 1: eax %08x, ebx %08x, ecx %08x\n"
      "CPUID 1e: ebx %08x\n",
      cpuid.leaf1_ecx, cpuid.leaf1_edx, cpuid.leaf7_ebx, cpuid.leaf7_ecx, cpuid.leaf7_edx, cpuid.leaf7_1_eax,
      cpuid.leaf1d_eax, cpuid.palette_eax, cpuid.palette_ebx, cpuid.palette_ecx, cpuid.leaf1e_ebx);
  absl::StrAppendFormat(&text, "XCR0: %x, the system keeps", cpuid.xcr0);
  for (const State& state : {kYmm, kZmm, kTiles}) {
    const bool kept = (cpuid.xcr0 & state.mask) == state.mask;
    absl::StrAppend(&text, kept ? " " : " no ", state.name);
  }
  absl::StrAppend(&text, "; permission for tile data ",
                  !cpuid.tile_permission   ? "not asked"
                  : *cpuid.tile_permission ? "granted"
                                           : "refused",
                  "\n");
  for (const Rule& rule : kRules) {
    const std::string lacks = Lacks(cpuid, rule.feature);
    absl::StrAppend(&text, "  ", std::string(Name(rule.feature)), ": ");
    if (target.Has(rule.feature)) {
      text += "yes\n";
    } else if (lacks.empty()) {
      text += "no, above the highest level allowed\n";
    } else {
      absl::StrAppend(&text, "no, lacks ", lacks, "\n");
    }
  }
  absl::StrAppend(&text, "target: ", target.ToString(), "\n");
  return text;
}

}  // namespace clikart::codegen
