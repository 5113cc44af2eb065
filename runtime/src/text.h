// std::string_view for Abseil's text functions, whose own string_view is another type where Abseil
// was built as C++14 (Debian's is).
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace clikart {

inline absl::string_view Text(std::string_view text) { return absl::string_view(text.data(), text.size()); }

}  // namespace clikart
