// The rows that clikart-mca prints: one loop on one CPU.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/analysis/kernel_loops.h"
#include "clikart/analysis/prediction.h"
#include "mca_cases.h"

namespace clikart::bench {

struct McaRow {
  std::string kernel;
  std::string isa;
  std::string cpu;
  analysis::KernelLoop loop;
  absl::StatusOr<analysis::Prediction> prediction;
  McaGoals goals;

  bool HasGoal() const { return goals.share.has_value() || goals.products.has_value(); }
  bool Met() const;
};

// A table with a heading for each kernel, and how many goals were met.
void PrintTable(const std::vector<McaRow>& rows);
void PrintJson(const std::vector<McaRow>& rows);

}  // namespace clikart::bench
