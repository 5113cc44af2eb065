// The table of a benchmark run: what was measured, the limit beside it, and whether a goal was met.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace clikart::bench {

struct Row {
  std::string name;
  double measured = 0;
  std::string unit;                // of `measured` and `limit`
  std::optional<double> limit;     // what the machine, or the plain variant, does
  std::optional<double> ratio;     // as compared with the goal; percent of the limit where one is given
  std::optional<double> at_least;  // goals, in percent for a ratio, else in `unit`
  std::optional<double> at_most;

  bool HasGoal() const { return at_least.has_value() || at_most.has_value(); }
  bool Met() const;
};

class Report {
 public:
  // Prints the row at once where the table is for people, so that a long run shows its way.
  explicit Report(bool json) : json_(json) {}
  void Section(const std::string& title);
  void Add(const Row& row);
  // The end: a JSON array, or how many goals were met.
  void Finish() const;
  bool AllMet() const;

 private:
  bool json_;
  std::vector<Row> rows_;
};

double Median(std::vector<double> values);

}  // namespace clikart::bench
