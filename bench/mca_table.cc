#include "mca_table.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace clikart::bench {
namespace {

using analysis::LoopCounts;

double ProductsForEachLoad(const LoopCounts& counts) {
  return static_cast<double>(counts.tile_products) / std::max(counts.tile_loads, 1);
}

std::string Verdict(const McaRow& row) {
  if (!row.HasGoal()) return "";
  const double goal = row.goals.share.has_value() ? *row.goals.share : *row.goals.products;
  return absl::StrFormat(">= %g %s", goal, row.Met() ? "met" : "MISSED");
}

// Models know little of tiles, so their loops are judged by what they consist of.
std::string TileColumns(const McaRow& row) {
  return absl::StrFormat("%d tile products, %d tile loads: %.2f for each  %s", row.loop.counts.tile_products,
                         row.loop.counts.tile_loads, ProductsForEachLoad(row.loop.counts), Verdict(row));
}

std::string TimeColumns(const McaRow& row) {
  const auto& prediction = row.prediction;
  if (!prediction.ok()) return std::string(prediction.status().message());
  const auto share = prediction->Share();
  const std::string percent = share.has_value() ? absl::StrFormat("%.1f %%", *share) : "";
  return absl::StrFormat("%6d %8.2f %8.2f %8s  %-12s %s", prediction->uops, prediction->cycles,
                         prediction->limit_cycles, percent, Verdict(row), prediction->bottleneck);
}

std::string JsonNumber(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.6g", *value) : "null";
}

}  // namespace

bool McaRow::Met() const {
  if (goals.products.has_value() && ProductsForEachLoad(loop.counts) < *goals.products) return false;
  if (!goals.share.has_value()) return true;
  return prediction.ok() && prediction->Share().value_or(0) >= *goals.share;
}

void PrintTable(const std::vector<McaRow>& rows) {
  std::string kernel;
  for (const McaRow& row : rows) {
    if (row.kernel != kernel) {
      kernel = row.kernel;
      std::printf("\n%s\n%-28s %-15s %-12s %6s %6s %6s %6s %6s %8s %8s %8s  %-12s %s\n", kernel.c_str(), "", "cpu",
                  "isa", "instr", "mult", "loads", "stack", "uops", "cycles", "limit", "share", "goal", "bottleneck");
    }
    const LoopCounts& counts = row.loop.counts;
    std::printf("%-28s %-15s %-12s %6d %6d %6d %6d %s\n", row.loop.name.c_str(), row.cpu.c_str(), row.isa.c_str(),
                counts.instructions, counts.multiplies, counts.loads, counts.stack_accesses,
                (counts.tile_products > 0 ? TileColumns(row) : TimeColumns(row)).c_str());
  }
  const auto goals = std::count_if(rows.begin(), rows.end(), [](const McaRow& row) { return row.HasGoal(); });
  const auto met =
      std::count_if(rows.begin(), rows.end(), [](const McaRow& row) { return row.HasGoal() && row.Met(); });
  std::printf("\n%d of %d goals met\n", static_cast<int>(met), static_cast<int>(goals));
}

void PrintJson(const std::vector<McaRow>& rows) {
  std::printf("[");
  const char* separator = "";
  for (const McaRow& row : rows) {
    const LoopCounts& counts = row.loop.counts;
    const auto& prediction = row.prediction;
    std::printf("%s\n {\"kernel\": \"%s\", \"loop\": \"%s\", \"cpu\": \"%s\", \"isa\": \"%s\", \"main\": %s,\n",
                separator, row.kernel.c_str(), row.loop.name.c_str(), row.cpu.c_str(), row.isa.c_str(),
                row.loop.main ? "true" : "false");
    std::printf(
        "  \"instructions\": %d, \"multiplies\": %d, \"loads\": %d, \"stores\": %d, \"stack_accesses\": %d, "
        "\"tile_products\": %d, \"tile_loads\": %d,\n",
        counts.instructions, counts.multiplies, counts.loads, counts.stores, counts.stack_accesses,
        counts.tile_products, counts.tile_loads);
    if (prediction.ok()) {
      std::printf(
          "  \"uops\": %d, \"cycles\": %.6g, \"limit_cycles\": %.6g, \"percent\": %s, \"bottleneck\": \"%s\",\n",
          prediction->uops, prediction->cycles, prediction->limit_cycles, JsonNumber(prediction->Share()).c_str(),
          prediction->bottleneck.c_str());
    }
    std::printf("  \"at_least_percent\": %s, \"at_least_products\": %s, \"met\": %s}",
                JsonNumber(row.goals.share).c_str(), JsonNumber(row.goals.products).c_str(),
                !row.HasGoal() ? "null"
                : row.Met()    ? "true"
                               : "false");
    separator = ",";
  }
  std::printf("\n]\n");
}

}  // namespace clikart::bench
