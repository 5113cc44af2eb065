// FNV-1a, 64 bits: hashes that are the same in every process and build.
#pragma once

#include <cstdint>
#include <string_view>

namespace clikart::ir {

class Fnv1a {
 public:
  void AddByte(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3u; }
  void AddWord(uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) AddByte(static_cast<uint8_t>(word >> shift));
  }
  void AddText(std::string_view text) {
    for (char c : text) AddByte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace clikart::ir
