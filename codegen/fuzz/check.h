// Runs a case and compares it with what the numerical contract says.
#pragma once

#include <string>

#include "case.h"

namespace clikart::codegen {

struct Verdict {
  enum class Kind : uint8_t { kGood, kRejected, kWrong };
  Kind kind = Kind::kGood;
  std::string text;  // what is wrong, or why the emitter would not serve the spec
};

// `emitter`, which is the case's, against the portable one, bit by bit; a kernel of rule 5 by its bound, and bit by bit
// in what follows the sums. The portable emitter is compared with the contract, word by word. Touching memory that is
// not the kernel's own and instructions that the CPU does not know are caught.
Verdict Check(const Case& c, const Emitter& emitter);

// The smallest case that is still wrong, found by trying simpler ones.
Case Shrink(Case c, const Emitter& emitter);

}  // namespace clikart::codegen
