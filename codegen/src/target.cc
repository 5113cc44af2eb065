#include "clikart/codegen/target.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace clikart::codegen {
namespace {

constexpr std::array kLevels = {
    IsaLevel::kBaseline,   IsaLevel::kSse4,       IsaLevel::kAvx2,       IsaLevel::kAvxVnni, IsaLevel::kAvx512,
    IsaLevel::kAvx512Vnni, IsaLevel::kAvx512Bf16, IsaLevel::kAvx512Fp16, IsaLevel::kAmx,
};
constexpr auto kLevelNames = std::to_array<std::string_view>(
    {"baseline", "sse4", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx"});
constexpr auto kFeatureNames =
    std::to_array<std::string_view>({"sse42", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16",
                                     "amx_int8", "amx_bf16", "amx_fp16"});
constexpr std::array kFeatureLevels = {
    IsaLevel::kSse4,       IsaLevel::kAvx2,       IsaLevel::kAvxVnni, IsaLevel::kAvx512, IsaLevel::kAvx512Vnni,
    IsaLevel::kAvx512Bf16, IsaLevel::kAvx512Fp16, IsaLevel::kAmx,     IsaLevel::kAmx,    IsaLevel::kAmx,
};
static_assert(kLevels.size() == static_cast<size_t>(kWidestIsa) + 1 && kLevelNames.size() == kLevels.size(),
              "a level is not listed");
static_assert(kFeatureNames.size() == kFeatureCount && kFeatureLevels.size() == kFeatureCount,
              "a feature is not listed");

}  // namespace

std::string_view Name(Feature feature) { return kFeatureNames[static_cast<size_t>(feature)]; }

std::string_view Name(IsaLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

std::span<const IsaLevel> AllIsaLevels() { return kLevels; }

IsaLevel LevelOf(Feature feature) { return kFeatureLevels[static_cast<size_t>(feature)]; }

absl::StatusOr<IsaLevel> ParseIsaLevel(std::string_view text) {
  std::string names;
  for (const IsaLevel level : kLevels) {
    if (Name(level) == text) return level;
    names.append(names.empty() ? "" : ", ").append(Name(level));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown ISA level \"", std::string(text), "\"; one of: ", names));
}

IsaLevel Target::level() const {
  IsaLevel level = IsaLevel::kBaseline;
  for (int i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (Has(feature)) level = std::max(level, LevelOf(feature));
  }
  return level;
}

std::string Target::ToString() const {
  std::string text(Name(level()));
  const char* separator = ": ";
  for (int i = 0; i < kFeatureCount; ++i) {
    if (!Has(static_cast<Feature>(i))) continue;
    text.append(separator).append(Name(static_cast<Feature>(i)));
    separator = " ";
  }
  return text;
}

Target TargetOf(IsaLevel level) {
  Target target;
  for (int i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (LevelOf(feature) <= level) target.features.Add(feature);
  }
  return target;
}

}  // namespace clikart::codegen
