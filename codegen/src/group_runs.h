// The groups of quantized weights that a depth block takes, and the sums of their inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "clikart/ir/code_layout.h"

namespace clikart::codegen {

// Groups that one call of a kernel takes: all of the same size, or a piece of one.
struct GroupRun {
  int64_t first = 0;  // step
  int64_t group = 0;
  int64_t groups = 1;
  int64_t steps = 0;     // of each
  bool resume = false;   // the group began in an earlier run
  bool partial = false;  // it goes on in a later one
};

// Steps [first, first + count), which are at most two runs.
struct DepthBlock {
  int64_t first = 0, count = 0;
  absl::InlinedVector<GroupRun, 2> runs;
  int64_t first_group() const { return runs.empty() ? 0 : runs.front().group; }
};

// Steps of a depth block of at most `most`: whole groups, or a piece of one that is whole units of any scheme.
int64_t BlockSteps(const ir::QuantScheme& scheme, int64_t depth, int64_t most);

// The block of up to so many steps from `first` on.
DepthBlock BlockFrom(const ir::CodeLayout& layout, int64_t block_steps, int64_t first);

// u = u + x of rule 3 for the groups of a run, of one row's inputs at `x`. A group's sum is sums[group * stride];
// where the group began in an earlier run it goes on from there.
void SumGroups(const float* x, const GroupRun& run, int64_t stride, float* sums);
void SumGroupsOfBf16(const uint16_t* x, const GroupRun& run, int64_t stride, float* sums);

}  // namespace clikart::codegen
