#include "json.h"

#include "absl/strings/str_format.h"

namespace clikart::cli {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < ' ') {
      quoted += absl::StrFormat("\\u%04x", static_cast<int>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

JsonObject& JsonObject::Seconds(std::string_view name, int64_t nanoseconds) {
  return Raw(name, absl::StrFormat("%.9f", static_cast<double>(nanoseconds) * 1e-9));
}

JsonObject& JsonObject::Raw(std::string_view name, std::string_view json) {
  if (!members_.empty()) members_ += ", ";
  members_.append(Quoted(name)).append(": ").append(json);
  return *this;
}

std::string JsonArray(const std::vector<std::string>& items) {
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i) text.append(i == 0 ? "\n  " : ",\n  ").append(items[i]);
  return text + (items.empty() ? "]" : "\n]");
}

}  // namespace clikart::cli
