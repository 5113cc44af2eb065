#include "table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace clikart::cli {

void PrintTable(std::ostream& out, const std::vector<Column>& columns,
                const std::vector<std::vector<std::string>>& rows, bool bold) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(columns[i].heading.size());
    for (const auto& row : rows) widths.back() = std::max(widths.back(), row[i].size());
  }
  const auto line = [&](const auto& cell) {
    std::string text;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& content = cell(i);
      const std::string padding(widths[i] - content.size(), ' ');
      text += (i == 0 ? "" : "  ") + (columns[i].right ? padding + content : content + padding);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  const std::string head = line([&](size_t i) -> const std::string& { return columns[i].heading; });
  out << (bold ? "\033[1m" + head + "\033[0m" : head) << "\n";
  for (const auto& row : rows) out << line([&](size_t i) -> const std::string& { return row[i]; }) << "\n";
}

std::string Size(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string Ago(int64_t seconds) {
  if (seconds < 3600) return "this hour";  // use is not recorded more finely
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, " h ago");
  return absl::StrCat(seconds / (24 * 3600), " d ago");
}

std::string Milliseconds(int64_t nanoseconds) {
  return absl::StrFormat("%.2f ms", static_cast<double>(nanoseconds) * 1e-6);
}

}  // namespace clikart::cli
