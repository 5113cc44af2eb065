// Columns as wide as what is in them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace clikart::cli {

// "left" or "right" by column; the last column may be as long as it likes.
struct Column {
  std::string heading;
  bool right = false;
};

void PrintTable(std::ostream& out, const std::vector<Column>& columns,
                const std::vector<std::vector<std::string>>& rows, bool bold);

// For people: "12.3 KiB", "3 h ago", "1.2 ms".
std::string Size(int64_t bytes);
std::string Ago(int64_t seconds);
std::string Milliseconds(int64_t nanoseconds);

}  // namespace clikart::cli
