// JSON as the commands print it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clikart::cli {

std::string Quoted(std::string_view text);

class JsonObject {
 public:
  JsonObject& Text(std::string_view name, std::string_view value) { return Raw(name, Quoted(value)); }
  JsonObject& Number(std::string_view name, int64_t value) { return Raw(name, std::to_string(value)); }
  JsonObject& Seconds(std::string_view name, int64_t nanoseconds);
  JsonObject& Flag(std::string_view name, bool value) { return Raw(name, value ? "true" : "false"); }
  JsonObject& Raw(std::string_view name, std::string_view json);
  std::string ToString() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// One item a line.
std::string JsonArray(const std::vector<std::string>& items);

}  // namespace clikart::cli
