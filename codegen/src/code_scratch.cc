#include <algorithm>

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "code_driver.h"
#include "group_runs.h"
#include "rounding.h"

namespace clikart::codegen {
namespace {

constexpr size_t kMostDecodeSteps = 1;  // of a program that needs no register but its own

}  // namespace

bool DecodesInRegisters(const ir::QuantScheme& scheme) {
  const ir::Decoding& decoding = ir::DecodingOf(scheme);
  return decoding.tabled() || decoding.program.instructions.size() <= kMostDecodeSteps;
}

int64_t StreamedPanels(const Schedule& schedule, int64_t rows) {
  const int64_t block = schedule.decoded_block;
  if (4 * rows <= block * schedule.panel_block && 3 * rows <= block) return 4;
  return 2 * rows <= block * schedule.panel_block ? 2 : 1;
}

CodeScratch::CodeScratch(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const ir::QuantScheme& scheme = *spec.scheme;
  const int64_t depth = spec.depth();
  const bool sorted = spec.order != ir::InputOrder::kNatural;
  few_ = rows <= schedule.few_rows;
  block_steps_ = few_ ? depth : BlockSteps(scheme, depth, schedule.depth_block);
  const int64_t group = scheme.group_size == -1 ? std::max<int64_t>(depth, 1) : scheme.group_size;
  // Of a depth block; a row without inputs is a group without steps.
  const int64_t groups = std::max<int64_t>((block_steps_ + group - 1) / group, 1);
  // One unit more than a block, which is decoded as a whole.
  widened_stride_ = few_ ? 0 : (block_steps_ + spec.interleave - 1) * kAccumulatorRow;
  keeps_accumulators_ = !few_ && depth > block_steps_;

  const int64_t panel_bytes = rows * kAccumulatorRow;
  const int64_t at_once = few_ ? StreamedPanels(schedule, FirstDecodedBlock(schedule, rows)) : schedule.panel_block;
  widened_at_ = lanes_at() + (few_ ? 0 : groups * schedule.panel_block * static_cast<int64_t>(sizeof(GroupLanes)));
  accumulators_at_ = widened_at_ + schedule.panel_block * widened_stride_;
  const int64_t accumulators = (keeps_accumulators_ ? panels : at_once) * panel_bytes;
  chains_at_ = accumulators_at_ + accumulators;
  merged_at_ = chains_at_ + (keeps_accumulators_ && group > block_steps_ ? accumulators : 0);
  bytes_ = merged_at_ + (sorted ? panels * panel_bytes : 0);
}

int64_t CodeScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  int64_t bytes = CodeScratch(spec, schedule, rows, panels).bytes();
  // Few rows keep their whole depth, and the fewer they are the more panels they take at once.
  for (int64_t fewer = 1; fewer <= schedule.few_rows && fewer < rows; ++fewer) {
    bytes = std::max(bytes, CodeScratch(spec, schedule, fewer, panels).bytes());
  }
  return bytes;
}

std::vector<MicroKind> CodeMicroKinds(const Schedule& schedule) {
  std::vector<MicroKind> kinds;
  const auto add = [&](WeightForm form, int64_t rows, int64_t widest) {
    for (int64_t panels = 1; panels <= widest; panels *= 2) {
      kinds.push_back({form, static_cast<int>(rows), static_cast<int>(panels)});
    }
  };
  for (int64_t rows = 1; rows <= schedule.decoded_block; ++rows) {
    add(WeightForm::kPacked, rows, StreamedPanels(schedule, rows));
  }
  for (int64_t rows = FewestRowsOfBlock(schedule); rows <= schedule.row_block; ++rows) {
    add(WeightForm::kWidened, rows, schedule.panel_block);
  }
  return kinds;
}

}  // namespace clikart::codegen
