#include "clikart/cache/usage.h"

#include <algorithm>
#include <charconv>

namespace clikart::cache {
namespace {

std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

bool ParseCount(std::string_view text, int64_t& count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count > 0 && count < int64_t{1} << 53;
}

}  // namespace

std::string Usage::ToString() const {
  std::string text;
  for (const auto& [key, count] : hits) text += "hit " + key + " " + std::to_string(count) + "\n";
  for (const auto& [reason, rejection] : rejections) {
    std::string line = "rejection " + reason + " " + std::to_string(rejection.count) + " " + rejection.example;
    std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    text += line + "\n";
  }
  return text;
}

void Usage::Add(std::string_view lines) {
  for (size_t end; (end = lines.find('\n')) != std::string_view::npos; lines.remove_prefix(end + 1)) {
    std::string_view line = lines.substr(0, end);
    const std::string_view kind = TakeWord(line);
    const std::string name(TakeWord(line));
    int64_t count = 0;
    if (name.empty() || !ParseCount(TakeWord(line), count)) continue;
    if (kind == "hit") {
      hits[name] += count;
    } else if (kind == "rejection") {
      Rejection& rejection = rejections[name];
      rejection.count += count;
      if (rejection.example.empty()) rejection.example = line;
    }
  }
}

}  // namespace clikart::cache
