// The inner loops that have a form for each level of the CPU, all with the same bits.
#pragma once

#include <cstdint>

#include "chain.h"
#include "clikart/codegen/target.h"

namespace clikart::codegen::portable {

struct LaneOps {
  decltype(&ExtendChainsBaseline) extend_chains;
  decltype(&AddScaledBaseline) add_scaled;
};

const LaneOps& LaneOpsFor(IsaLevel isa);

}  // namespace clikart::codegen::portable
