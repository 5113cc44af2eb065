// The little of the ustar format that an archive of entries takes, so that `tar tf` reads it too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace clikart::cli {

struct TarMember {
  std::string name;
  std::span<const uint8_t> content;
};

// One member as the archive has it; the end is written by TarEnd.
std::vector<uint8_t> TarMemberBytes(std::string_view name, std::span<const uint8_t> content);
std::vector<uint8_t> TarEnd();

// Regular files only; an error where the archive is anything else. The members refer to `archive`.
absl::StatusOr<std::vector<TarMember>> ReadTar(std::span<const uint8_t> archive);

}  // namespace clikart::cli
