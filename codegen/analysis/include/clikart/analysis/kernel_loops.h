// The inner loops of an emitted kernel and what they consist of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/analysis/disassembly.h"
#include "clikart/analysis/prediction.h"
#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"

namespace clikart::analysis {

struct KernelLoop {
  std::string name;
  CodeRange range;
  LoopCounts counts;
  // The loop of a whole register tile: with many rows nearly all time is spent here.
  bool main = false;
};

// In the order of the code. An error where it cannot be decoded.
absl::StatusOr<std::vector<KernelLoop>> LoopsOf(const codegen::EmittedKernel& kernel);
// One iteration's code: what Predict takes.
std::span<const uint8_t> CodeOf(const codegen::EmittedKernel& kernel, const KernelLoop& loop);

// What `cpu` offers and `cap` allows; nothing where LLVM does not know the CPU.
codegen::Target TargetOfCpu(std::string_view cpu, codegen::IsaLevel cap);

}  // namespace clikart::analysis
