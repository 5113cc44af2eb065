#include "group_runs.h"

#include <algorithm>
#include <bit>

namespace clikart::codegen {
namespace {

float Widened(float x) { return x; }
float Widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Chains of several groups go on side by side, as each waits for its own additions.
template <typename Element>
void Sum(const Element* x, const GroupRun& run, int64_t stride, float* sums) {
  constexpr int64_t kChains = 8;
  if (run.groups == 1) {
    float sum = run.resume ? *sums : 0.0f;
    for (int64_t i = 0; i < run.steps; ++i) sum += Widened(x[i]);
    *sums = sum;
    return;
  }
  for (int64_t group = 0; group < run.groups; group += kChains) {
    const int64_t chains = std::min(kChains, run.groups - group);
    const Element* const from = x + group * run.steps;
    float sum[kChains] = {};
    if (chains == kChains) {
      for (int64_t i = 0; i < run.steps; ++i) {
        for (int64_t chain = 0; chain < kChains; ++chain) sum[chain] += Widened(from[chain * run.steps + i]);
      }
    } else {
      for (int64_t chain = 0; chain < chains; ++chain) {
        for (int64_t i = 0; i < run.steps; ++i) sum[chain] += Widened(from[chain * run.steps + i]);
      }
    }
    for (int64_t chain = 0; chain < chains; ++chain) sums[(group + chain) * stride] = sum[chain];
  }
}

}  // namespace

int64_t BlockSteps(const ir::QuantScheme& scheme, int64_t depth, int64_t most) {
  const int64_t group = scheme.group_size == -1 ? depth : scheme.group_size;
  if (depth <= most) return depth;
  return group <= most ? most / group * group : most;
}

DepthBlock BlockFrom(const ir::CodeLayout& layout, int64_t block_steps, int64_t first) {
  DepthBlock block{first, std::min(block_steps, layout.depth() - first), {}};
  if (layout.Groups() == 0) return block;
  const int64_t size = layout.GroupSteps(0);
  const int64_t group = size == 0 ? 0 : first / size;
  if (size == 0 || size > block_steps) {
    const int64_t begin = layout.GroupBegin(group), end = layout.GroupBegin(group + 1);
    block.count = std::min(block.count, end - first);
    block.runs.push_back({first, group, 1, block.count, first > begin, first + block.count < end});
    return block;
  }
  const int64_t whole = block.count / size, rest = block.count % size;
  if (whole > 0) block.runs.push_back({first, group, whole, size});
  if (rest > 0) block.runs.push_back({first + whole * size, group + whole, 1, rest});
  return block;
}

void SumGroups(const float* x, const GroupRun& run, int64_t stride, float* sums) { Sum(x, run, stride, sums); }

void SumGroupsOfBf16(const uint16_t* x, const GroupRun& run, int64_t stride, float* sums) { Sum(x, run, stride, sums); }

}  // namespace clikart::codegen
