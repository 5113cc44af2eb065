#include "program_builder.h"

#include <algorithm>
#include <utility>

namespace clikart::ir {

Lane ProgramBuilder::Emit(const Instruction& instruction) {
  const Key key{instruction.op, instruction.a, instruction.b, instruction.c, instruction.imm};
  const auto next = static_cast<uint16_t>(static_cast<size_t>(inputs_) + instructions_.size());
  const auto [known, is_new] = known_.try_emplace(key, next);
  if (is_new) instructions_.push_back(instruction);
  return Lane(this, known->second);
}

namespace {

// Writes the values that a result needs in an order that depends on the expression alone, not on the
// order in which the compiler evaluated its parts: operands first, the one that needs more registers
// before the others (Ershov numbers), so that few values wait.
class Scheduler {
 public:
  Scheduler(int inputs, const std::vector<Instruction>& instructions)
      : inputs_(static_cast<size_t>(inputs)),
        instructions_(instructions),
        need_(inputs_ + instructions.size()),
        renamed_(inputs_ + instructions.size(), kUnplaced) {
    program_.inputs = inputs;
    for (size_t i = 0; i < inputs_; ++i) renamed_[i] = static_cast<uint16_t>(i);
    for (size_t i = 0; i < instructions.size(); ++i) {
      int need = instructions[i].op == Op::kConst ? 0 : 1;
      const std::vector<uint16_t> operands = Operands(instructions[i]);
      for (size_t j = 0; j < operands.size(); ++j) need = std::max(need, need_[operands[j]] + static_cast<int>(j));
      need_[inputs_ + i] = need;
    }
  }

  void Place(uint16_t value) {
    if (renamed_[value] != kUnplaced) return;
    Instruction instruction = instructions_[value - inputs_];
    for (uint16_t operand : Operands(instruction)) Place(operand);
    uint16_t* const fields[] = {&instruction.a, &instruction.b, &instruction.c};
    for (int j = 0; j < OperandCount(instruction.op); ++j) *fields[j] = renamed_[*fields[j]];
    renamed_[value] = static_cast<uint16_t>(inputs_ + program_.instructions.size());
    program_.instructions.push_back(instruction);
  }

  Program Finish(uint16_t result) {
    program_.result = renamed_[result];
    return std::move(program_);
  }

 private:
  static constexpr uint16_t kUnplaced = 0xffff;

  std::vector<uint16_t> Operands(const Instruction& instruction) const {
    std::vector<uint16_t> operands = {instruction.a, instruction.b, instruction.c};
    operands.resize(static_cast<size_t>(OperandCount(instruction.op)));
    std::stable_sort(operands.begin(), operands.end(), [&](uint16_t a, uint16_t b) { return need_[a] > need_[b]; });
    return operands;
  }

  size_t inputs_;
  const std::vector<Instruction>& instructions_;
  std::vector<int> need_;
  std::vector<uint16_t> renamed_;
  Program program_;
};

}  // namespace

Program ProgramBuilder::Build(Lane result) const {
  Scheduler scheduler(inputs_, instructions_);
  scheduler.Place(result.index());
  return scheduler.Finish(result.index());
}

}  // namespace clikart::ir
