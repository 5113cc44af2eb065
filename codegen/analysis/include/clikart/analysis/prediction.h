// What a CPU's scheduling model, as LLVM has it, says of a loop that repeats for long: the
// cycles of an iteration beside those that its multiplications would take on their own.
//
// The model assumes that every load hits the first-level cache and every branch is foreseen, so this
// judges the instructions chosen, not the memory behind them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace clikart::analysis {

// What one pass over a loop's instructions consists of.
struct LoopCounts {
  int instructions = 0;
  int multiplies = 0;     // vector fma, integer dot and bf16 dot instructions
  int tile_products = 0;  // AMX
  int tile_loads = 0;
  int loads = 0;           // instructions that read memory, tile loads and prefetches apart
  int stores = 0;          // instructions that write memory
  int stack_accesses = 0;  // relative to the stack pointer: where a register plan ran out of registers
};

struct Prediction {
  LoopCounts counts;
  int uops = 0;
  double cycles = 0;  // of an iteration
  // Of an iteration's multiplications, if the ports that take them did nothing else.
  double limit_cycles = 0;
  std::string bottleneck;

  // Percent of the limit that the loop reaches; none where it does not multiply.
  std::optional<double> Share() const {
    if (limit_cycles == 0) return std::nullopt;
    return 100 * limit_cycles / cycles;
  }
};

// `code` is one iteration, the jump included.
absl::StatusOr<LoopCounts> CountLoop(std::span<const uint8_t> code);

// CPUs by LLVM's names that tools ask about when nobody says which.
std::span<const std::string_view> KnownCpus();
// Whether `cpu` has all of `features`, both as LLVM writes them ("+avx512f,+avx512bf16"). False where LLVM
// does not know the CPU.
bool CpuHas(std::string_view cpu, std::string_view features);
// An error where LLVM has no model of `cpu`, or the model lacks an instruction. That the CPU has it is for
// CpuHas to say: models hold instructions that their CPU does not.
absl::StatusOr<Prediction> Predict(std::span<const uint8_t> code, std::string_view cpu);

}  // namespace clikart::analysis
