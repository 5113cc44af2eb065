// What kind of work an instruction is.
#pragma once

#include <string_view>

#include "clikart/analysis/prediction.h"
#include "decoder.h"

namespace clikart::analysis {

// A multiplication of vectors: fma, integer or bf16 dot product.
bool IsMultiply(std::string_view opcode);
LoopCounts Count(const Decoder& decoder, const std::vector<Decoded>& loop);

}  // namespace clikart::analysis
