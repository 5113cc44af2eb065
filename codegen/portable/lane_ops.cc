#include "lane_ops.h"

namespace clikart::codegen::portable {
const LaneOps& LaneOpsFor(IsaLevel isa) {
  static constexpr LaneOps kBaseline = {ExtendChainsBaseline, AddScaledBaseline};
  static constexpr LaneOps kAvx2 = {ExtendChainsAvx2, AddScaledAvx2};
  return isa >= IsaLevel::kAvx2 ? kAvx2 : kBaseline;
}

}  // namespace clikart::codegen::portable
