// Targets as people write them.
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/codegen/target.h"
#include "detect.h"

namespace clikart::codegen {
namespace {

std::optional<Feature> FindFeature(std::string_view name) {
  for (int i = 0; i < kFeatureCount; ++i) {
    if (Name(static_cast<Feature>(i)) == name) return static_cast<Feature>(i);
  }
  return std::nullopt;
}

absl::Status Unknown(const std::string& word) {
  std::string levels, features;
  for (const IsaLevel level : AllIsaLevels()) levels.append(levels.empty() ? "" : ", ").append(Name(level));
  for (int i = 0; i < kFeatureCount; ++i) features.append(i == 0 ? "" : ", ").append(Name(static_cast<Feature>(i)));
  return absl::InvalidArgumentError(
      absl::StrCat("target: \"", word, "\" is no ISA level (", levels, ") and no list of features (", features, ")"));
}

}  // namespace

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  if (const absl::StatusOr<IsaLevel> level = ParseIsaLevel(text); level.ok()) return TargetOf(*level);
  const size_t colon = text.find(':');
  const std::string list(colon == std::string_view::npos ? text : text.substr(colon + 1));
  const std::vector<std::string> words = absl::StrSplit(list, absl::ByAnyChar(", "), absl::SkipEmpty());
  if (words.empty()) return Unknown(std::string(text));
  Target target;
  for (const std::string& word : words) {
    const std::optional<Feature> feature = FindFeature(word);
    if (!feature) return Unknown(word);
    target.features.Add(*feature);
  }
  for (int i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (!target.Has(feature) || target.Has(Below(feature))) continue;
    return absl::InvalidArgumentError(absl::StrCat("target: ", std::string(Name(feature)), " stands on ",
                                                   std::string(Name(Below(feature))), ", which is not listed"));
  }
  if (colon != std::string_view::npos && Name(target.level()) != text.substr(0, colon)) {
    return absl::InvalidArgumentError(absl::StrCat("target: these features make up the level ",
                                                   std::string(Name(target.level())), ", not \"",
                                                   std::string(text.substr(0, colon)), "\""));
  }
  return target;
}

}  // namespace clikart::codegen
