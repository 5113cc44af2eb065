// Joins texts and numbers. Abseil's string_view may be a type of its own, which the standard one does
// not convert to; the seam is here.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace clikart::ir {

inline absl::string_view ToAbsl(std::string_view text) { return absl::string_view(text.data(), text.size()); }
inline std::string_view FromAbsl(absl::string_view text) { return std::string_view(text.data(), text.size()); }

template <typename T>
decltype(auto) Piece(const T& piece) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return ToAbsl(piece);
  } else {
    return (piece);
  }
}

template <typename... T>
std::string Text(const T&... pieces) {
  return absl::StrCat(Piece(pieces)...);
}

inline std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1) {
    words.push_back(text.substr(begin, end - begin));
  }
  words.push_back(text.substr(begin));
  return words;
}

// A whole number, spelled as it would be printed: no sign "+", no leading zeros.
template <typename Integer>
bool ParseInteger(std::string_view text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && absl::StrCat(value) == ToAbsl(text);
}

}  // namespace clikart::ir
