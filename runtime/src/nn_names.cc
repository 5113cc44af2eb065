// The spellings of the options in nn.h, both ways.
#include <array>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "text.h"

namespace clikart {
namespace {

template <typename T>
struct Spelling {
  T value;
  std::string_view name;
};

constexpr std::array<Spelling<Residency>, 2> kResidencies = {
    {{Residency::kPacked, "packed"}, {Residency::kPerCall, "per_call"}}};
constexpr std::array<Spelling<Compute>, 2> kComputes = {{{Compute::kFloat, "float"}, {Compute::kInt8, "int8"}}};
constexpr std::array<Spelling<ScaleSearch>, 2> kScaleSearches = {
    {{ScaleSearch::kMinMax, "minmax"}, {ScaleSearch::kMse, "mse"}}};
constexpr std::array<Spelling<PaddingMode>, 4> kPaddingModes = {{{PaddingMode::kZeros, "zeros"},
                                                                 {PaddingMode::kReflect, "reflect"},
                                                                 {PaddingMode::kReplicate, "replicate"},
                                                                 {PaddingMode::kCircular, "circular"}}};
constexpr std::array<Spelling<LayerState>, 4> kStates = {{{LayerState::kUnbound, "unbound"},
                                                          {LayerState::kBound, "bound"},
                                                          {LayerState::kPacked, "packed"},
                                                          {LayerState::kFused, "fused"}}};

template <typename T, size_t N>
std::string_view NameIn(const std::array<Spelling<T>, N>& spellings, T value) {
  for (const auto& spelling : spellings) {
    if (spelling.value == value) return spelling.name;
  }
  return "unknown";
}

template <typename T, size_t N>
absl::StatusOr<T> ParseIn(const std::array<Spelling<T>, N>& spellings, std::string_view what, std::string_view text) {
  std::string names;
  for (const auto& spelling : spellings) {
    if (spelling.name == text) return spelling.value;
    absl::StrAppend(&names, names.empty() ? "" : ", ", Text(spelling.name));
  }
  return absl::InvalidArgumentError(absl::StrCat(Text(what), " '", Text(text), "' is not one of ", names));
}

}  // namespace

std::string_view Name(Residency residency) { return NameIn(kResidencies, residency); }
std::string_view Name(Compute compute) { return NameIn(kComputes, compute); }
std::string_view Name(ScaleSearch search) { return NameIn(kScaleSearches, search); }
std::string_view Name(PaddingMode mode) { return NameIn(kPaddingModes, mode); }
std::string_view Name(LayerState state) { return NameIn(kStates, state); }

absl::StatusOr<Residency> ParseResidency(std::string_view text) { return ParseIn(kResidencies, "residency", text); }
absl::StatusOr<Compute> ParseCompute(std::string_view text) { return ParseIn(kComputes, "compute", text); }
absl::StatusOr<ScaleSearch> ParseScaleSearch(std::string_view text) { return ParseIn(kScaleSearches, "scales", text); }
absl::StatusOr<PaddingMode> ParsePaddingMode(std::string_view text) {
  return ParseIn(kPaddingModes, "padding_mode", text);
}

}  // namespace clikart
