// SHA-256, for the names of entries and to know a damaged file.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace clikart::cache {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(std::span<const uint8_t> bytes);
std::string Hex(const Digest& digest);

}  // namespace clikart::cache
