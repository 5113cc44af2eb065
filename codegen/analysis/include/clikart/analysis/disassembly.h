// Generated code as text, and where its innermost loops are. LLVM does the decoding; it stays in this
// library, which neither the runtime nor the package links.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace clikart::analysis {

struct Line {
  int64_t offset = 0;  // in the code
  int64_t bytes = 0;
  std::string text;          // Intel syntax
  int64_t jumps_to = kNone;  // in the code: of a direct jump, else kNone
  bool returns = false;
  static constexpr int64_t kNone = -1;
};

// An error names the offset of bytes that are no instruction.
absl::StatusOr<std::vector<Line>> Disassemble(std::span<const uint8_t> code);

// Bytes from a backward jump's target up to and with that jump, with no return and no other loop inside.
struct CodeRange {
  int64_t begin = 0, end = 0;
  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};
std::vector<CodeRange> InnerLoops(std::span<const Line> lines);

}  // namespace clikart::analysis
