#include "lane_ops.h"

namespace clikart::codegen::portable {
namespace {

int64_t DecodeNothing(const CodeTable&, const LaneCodes&, int64_t begin, int64_t, float*) { return begin; }

}  // namespace

const LaneOps& LaneOpsFor(IsaLevel isa) {
  static constexpr LaneOps kBaseline = {ExtendChainsBaseline, AddScaledBaseline, DecodeNothing};
  static constexpr LaneOps kAvx2 = {ExtendChainsAvx2, AddScaledAvx2, DecodeEightsAvx2};
  return isa >= IsaLevel::kAvx2 ? kAvx2 : kBaseline;
}

}  // namespace clikart::codegen::portable
