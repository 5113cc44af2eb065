#include "report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace clikart::bench {
namespace {

std::string Goal(const Row& row) {
  const char* const percent = row.ratio.has_value() ? " %" : "";
  if (row.at_least.has_value()) return absl::StrFormat(">= %g%s", *row.at_least, percent);
  if (row.at_most.has_value()) return absl::StrFormat("<= %g%s", *row.at_most, percent);
  return "";
}

std::string JsonNumber(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.6g", *value) : "null";
}

}  // namespace

bool Row::Met() const {
  const double value = ratio.value_or(measured);
  return (!at_least.has_value() || value >= *at_least) && (!at_most.has_value() || value <= *at_most);
}

void Report::Section(const std::string& title) {
  if (json_) return;
  std::printf("\n%s\n%-38s %12s %12s %9s  %-9s\n", title.c_str(), "", "measured", "limit", "share", "goal");
}

void Report::Add(const Row& row) {
  rows_.push_back(row);
  if (json_) return;
  const std::string limit = row.limit.has_value() ? absl::StrFormat("%.1f", *row.limit) : "";
  const std::string ratio = row.ratio.has_value() ? absl::StrFormat("%.1f %%", *row.ratio) : "";
  const char* const verdict = !row.HasGoal() ? "" : row.Met() ? "met" : "MISSED";
  std::printf("%-38s %12.1f %12s %9s  %-9s %-8s %s\n", row.name.c_str(), row.measured, limit.c_str(), ratio.c_str(),
              Goal(row).c_str(), row.unit.c_str(), verdict);
  std::fflush(stdout);
}

void Report::Finish() const {
  if (!json_) {
    const auto goals = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.HasGoal(); });
    const auto met =
        std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.HasGoal() && row.Met(); });
    std::printf("\n%d of %d goals met\n", static_cast<int>(met), static_cast<int>(goals));
    return;
  }
  std::printf("[");
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    std::printf(
        "%s\n {\"name\": \"%s\", \"measured\": %.6g, \"unit\": \"%s\", \"limit\": %s, \"percent\": %s, "
        "\"at_least\": %s, \"at_most\": %s, \"met\": %s}",
        i == 0 ? "" : ",", row.name.c_str(), row.measured, row.unit.c_str(), JsonNumber(row.limit).c_str(),
        JsonNumber(row.ratio).c_str(), JsonNumber(row.at_least).c_str(), JsonNumber(row.at_most).c_str(),
        !row.HasGoal() ? "null"
        : row.Met()    ? "true"
                       : "false");
  }
  std::printf("\n]\n");
}

bool Report::AllMet() const {
  return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.Met(); });
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace clikart::bench
