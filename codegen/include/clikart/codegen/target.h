// The CPU that code is generated for: one value, made from CPUID, XCR0 and the system's consent to tile
// registers, never from a CPU name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace clikart::codegen {

// What a kernel may use, in bundles that kernels need whole.
enum class Feature : uint8_t {
  kSse42,    // SSE3 SSSE3 SSE4.1 SSE4.2 POPCNT
  kAvx2,     // AVX AVX2 FMA F16C BMI1 BMI2
  kAvxVnni,  // vpdpbusd on ymm, VEX encoded
  kAvx512,   // F BW VL DQ
  kAvx512Vnni,
  kAvx512Bf16,
  kAvx512Fp16,
  kAmxInt8,  // with AMX-TILE, and kAvx512 for what is done to the accumulators
  kAmxBf16,  // the same
  kAmxFp16,  // the same
};
inline constexpr int kFeatureCount = static_cast<int>(Feature::kAmxFp16) + 1;

std::string_view Name(Feature feature);  // "avx2", "avx512_vnni", "amx_bf16"

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(std::initializer_list<Feature> features) {
    for (const Feature feature : features) Add(feature);
  }
  constexpr void Add(Feature feature) { bits_ |= Bit(feature); }
  constexpr bool Has(Feature feature) const { return (bits_ & Bit(feature)) != 0; }
  constexpr bool Includes(FeatureSet other) const { return (bits_ & other.bits_) == other.bits_; }
  friend constexpr bool operator==(const FeatureSet&, const FeatureSet&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const FeatureSet& set) {
    return H::combine(std::move(h), set.bits_);
  }

 private:
  static constexpr uint16_t Bit(Feature feature) { return static_cast<uint16_t>(1u << static_cast<int>(feature)); }
  uint16_t bits_ = 0;
};

// Names for caps and for what a kernel needs. Ordered: a level allows everything that the levels before
// it allow, though no CPU need have it all (Zen 4 has AVX512-BF16 and no AVX-VNNI).
enum class IsaLevel : uint8_t {
  kBaseline,
  kSse4,
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAvx512Fp16,
  kAmx,
};
inline constexpr IsaLevel kWidestIsa = IsaLevel::kAmx;

std::string_view Name(IsaLevel level);                          // "baseline", "avx512_vnni"
absl::StatusOr<IsaLevel> ParseIsaLevel(std::string_view text);  // the error lists the levels
std::span<const IsaLevel> AllIsaLevels();                       // lowest first
IsaLevel LevelOf(Feature feature);                              // the lowest one that allows it

struct Target {
  FeatureSet features;

  bool Has(Feature feature) const { return features.Has(feature); }
  // Code for `other` runs here.
  bool Includes(const Target& other) const { return features.Includes(other.features); }
  // The lowest level that allows all the features.
  IsaLevel level() const;
  std::string ToString() const;  // "avx512_vnni: sse42 avx2 avx512 avx512_vnni"

  friend bool operator==(const Target&, const Target&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Target& target) {
    return H::combine(std::move(h), target.features);
  }
};

// A CPU with everything up to that level: for tests, benchmarks and static analysis.
Target TargetOf(IsaLevel level);

// A machine that need not be this one: a level for everything up to it ("avx2"), or features by name with those that
// they stand on, between commas or spaces, with or without the level that ToString puts before them
// ("avx512_vnni: sse42 avx2 avx512 avx512_vnni"). InvalidArgument names the word and what is known.
absl::StatusOr<Target> ParseTarget(std::string_view text);

// What CPUID, XGETBV and the system said; a value, so that tests can play other machines.
struct CpuidRecord {
  uint32_t leaf1_ecx = 0, leaf1_edx = 0;
  uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;                                    // subleaf 1
  uint32_t leaf1d_eax = 0;                                     // the highest tile palette
  uint32_t palette_eax = 0, palette_ebx = 0, palette_ecx = 0;  // leaf 1D, subleaf 1: palette 1
  uint32_t leaf1e_ebx = 0;                                     // what a tile product takes
  uint64_t xcr0 = 0;                                           // 0 where OSXSAVE is clear
  // Whether Linux lets this process use tile data; empty where it was not asked, because something else
  // is missing already.
  std::optional<bool> tile_permission;

  // This machine. Asks the system for tile data, once a process and only where nothing else keeps tiles
  // from use and `cap` allows them: the permission cannot be given back and makes signal frames larger.
  static CpuidRecord Host(IsaLevel cap = kWidestIsa);
};

// What CPU and system both offer and `cap` allows. Anything doubtful stays off.
Target Detect(const CpuidRecord& cpuid, IsaLevel cap);

// For people: the raw words, what the system keeps, and each feature with the first thing that it lacks.
std::string Describe(const CpuidRecord& cpuid, const Target& target);

}  // namespace clikart::codegen
