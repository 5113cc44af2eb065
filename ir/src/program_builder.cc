#include "program_builder.h"

namespace clikart::ir {

Lane ProgramBuilder::Emit(const Instruction& instruction) {
  const Key key{instruction.op, instruction.a, instruction.b, instruction.c, instruction.imm};
  const auto next = static_cast<uint16_t>(static_cast<size_t>(inputs_) + instructions_.size());
  const auto [known, is_new] = known_.try_emplace(key, next);
  if (is_new) instructions_.push_back(instruction);
  return Lane(this, known->second);
}

Program ProgramBuilder::Build(Lane result) const {
  // A value lives when the result needs it, through however many others.
  std::vector<bool> live(static_cast<size_t>(inputs_) + instructions_.size());
  live[result.index()] = true;
  for (size_t i = instructions_.size(); i-- > 0;) {
    if (!live[static_cast<size_t>(inputs_) + i]) continue;
    const Instruction& in = instructions_[i];
    const uint16_t operands[] = {in.a, in.b, in.c};
    for (int j = 0; j < OperandCount(in.op); ++j) live[operands[j]] = true;
  }
  Program program;
  program.inputs = inputs_;
  std::vector<uint16_t> renamed(live.size());
  for (size_t value = 0; value < live.size(); ++value) {
    if (value < static_cast<size_t>(inputs_)) {
      renamed[value] = static_cast<uint16_t>(value);
      continue;
    }
    if (!live[value]) continue;
    Instruction in = instructions_[value - static_cast<size_t>(inputs_)];
    uint16_t* operands[] = {&in.a, &in.b, &in.c};
    for (int j = 0; j < OperandCount(in.op); ++j) *operands[j] = renamed[*operands[j]];
    renamed[value] = static_cast<uint16_t>(static_cast<size_t>(inputs_) + program.instructions.size());
    program.instructions.push_back(in);
  }
  program.result = renamed[result.index()];
  return program;
}

}  // namespace clikart::ir
