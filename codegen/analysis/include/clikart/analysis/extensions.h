// Which of x86's extensions an instruction belongs to, told by its encoding and its name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "clikart/codegen/target.h"

namespace clikart::analysis {

enum class Extension : uint8_t {
  kBase,  // x86-64 with SSE2
  kSse42,
  kAvx,
  kAvx2,
  kFma,
  kF16c,
  kBmi,
  kAvxVnni,
  kAvx512F,
  kAvx512Bw,
  kAvx512Dq,
  kAvx512Vl,  // an AVX-512 form of 128 or 256 bits
  kAvx512Vnni,
  kAvx512Bf16,
  kAvx512Fp16,
  kAmxTile,
  kAmxInt8,
  kAmxBf16,
  kAmxFp16,
  kOther,  // one that no Target has
};
inline constexpr int kExtensionCount = static_cast<int>(Extension::kOther) + 1;

std::string_view Name(Extension extension);  // "AVX512BW"

class ExtensionSet {
 public:
  constexpr void Add(Extension extension) { bits_ |= uint32_t{1} << static_cast<int>(extension); }
  constexpr bool Has(Extension extension) const { return (bits_ >> static_cast<int>(extension) & 1) != 0; }
  friend constexpr bool operator==(ExtensionSet, ExtensionSet) = default;

 private:
  uint32_t bits_ = 0;
};

// What one instruction needs; `text` is it as LLVM prints it, in either syntax. A masked or narrow AVX-512
// form needs several extensions.
ExtensionSet ExtensionsOf(std::span<const uint8_t> bytes, std::string_view text);

// Whether a CPU with the target's features, and no more, knows all of them.
bool Allows(const codegen::Target& target, ExtensionSet extensions);

}  // namespace clikart::analysis
