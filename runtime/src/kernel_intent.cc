#include "kernel_intent.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clikart/ir/activation.h"
#include "status_macros.h"

namespace clikart {
namespace {

constexpr std::array<std::string_view, 2> kDecided = {"product", "interleave"};
constexpr std::array<std::string_view, 2> kFingerprinted = {"act", "scheme"};
constexpr std::array<std::string_view, 6> kAlwaysGiven = {"kind", "n", "k", "x", "w", "y"};

template <size_t N>
bool IsOneOf(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct Field {
  std::string name, value;
};

// "name=value" words.
absl::StatusOr<std::vector<Field>> FieldsOf(std::string_view text) {
  std::vector<Field> fields;
  const std::vector<std::string> words = absl::StrSplit(std::string(text), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("found \"", word, "\", expected words like n=64"));
    }
    fields.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return fields;
}

// Every field, in the order in which KernelSpec::Parse wants them.
std::vector<Field> AllFieldsOf(const ir::KernelSpec& spec) { return *FieldsOf(spec.ToString()); }

// An activation or a scheme by name alone, as a spec's text has it.
absl::StatusOr<std::string> WithFingerprint(const Field& named) {
  ir::KernelSpec spec;
  if (named.name == "act") {
    CLIKART_ASSIGN_OR_RETURN(spec.activation, ir::ParseActivation(named.value));
  } else if (named.value != "none") {
    CLIKART_ASSIGN_OR_RETURN(spec.scheme, ir::QuantScheme::Parse(named.value));
  }
  const std::vector<Field> fields = AllFieldsOf(spec);
  return std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == named.name; })
      ->value;
}

}  // namespace

ir::KernelSpec SpecFor(ir::KernelSpec spec, const codegen::Target& target, codegen::MathMode math) {
  spec.interleave = codegen::InterleaveFor(spec, target, math);
  spec.product = codegen::ProductFor(spec, target, math);
  return spec;
}

ir::KernelSpec IntentOf(const ir::KernelSpec& spec) {
  return SpecFor(spec, codegen::Target{}, codegen::MathMode::kExact);
}

std::string IntentText(const ir::KernelSpec& intent) {
  const std::vector<Field> fields = AllFieldsOf(intent), defaults = AllFieldsOf(ir::KernelSpec());
  std::vector<std::string> words;
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto& [name, value] = fields[i];
    if (IsOneOf(name, kDecided) || (value == defaults[i].value && !IsOneOf(name, kAlwaysGiven))) continue;
    words.push_back(absl::StrCat(name, "=", IsOneOf(name, kFingerprinted) ? value.substr(0, value.find('@')) : value));
  }
  return absl::StrJoin(words, " ");
}

absl::StatusOr<ir::KernelSpec> ParseIntent(std::string_view text) {
  CLIKART_ASSIGN_OR_RETURN(const std::vector<Field> given, FieldsOf(text));
  std::vector<Field> fields = AllFieldsOf(ir::KernelSpec());
  std::map<std::string, bool> seen;
  for (const Field& field : given) {
    const auto known = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field.name; });
    if (known == fields.end()) {
      const std::string names =
          absl::StrJoin(fields, ", ", [](std::string* out, const Field& f) { absl::StrAppend(out, f.name); });
      return absl::InvalidArgumentError(absl::StrCat("\"", field.name, "\" is none of ", names));
    }
    if (std::exchange(seen[field.name], true)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", field.name, "\" is given twice"));
    }
    if (IsOneOf(field.name, kDecided)) continue;
    known->value = field.value;
    if (IsOneOf(field.name, kFingerprinted) && field.value.find('@') == std::string::npos) {
      CLIKART_ASSIGN_OR_RETURN(known->value, WithFingerprint(field));
    }
  }
  for (const std::string_view name : kAlwaysGiven) {
    if (seen.count(std::string(name)) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("\"", std::string(name), "\" is missing"));
    }
  }
  const std::string whole =
      absl::StrJoin(fields, " ", [](std::string* out, const Field& f) { absl::StrAppend(out, f.name, "=", f.value); });
  CLIKART_ASSIGN_OR_RETURN(const ir::KernelSpec spec, ir::KernelSpec::Parse(whole));
  const ir::KernelSpec intent = IntentOf(spec);
  CLIKART_RETURN_IF_ERROR(intent.Verify());
  return intent;
}

}  // namespace clikart
