#include "register_plan.h"

#include <array>
#include <limits>
#include <utility>

namespace clikart::codegen {
namespace {

constexpr int kFree = -1;
constexpr int kTemporary = -2;  // a constant brought to a register for one instruction
constexpr int kNever = std::numeric_limits<int>::max();

bool Commutes(ir::Op op) {
  switch (op) {
    case ir::Op::kAdd:
    case ir::Op::kMul:
    case ir::Op::kAnd:
    case ir::Op::kOr:
    case ir::Op::kXor:
    case ir::Op::kIntAdd:
      return true;
    default:
      return false;
  }
}

class Planner {
 public:
  Planner(const ir::Program& program, int registers)
      : program_(program), values_(program.inputs + program.instructions.size()), owner_(registers, kFree) {
    FindUses();
    for (int i = 0; i < program.inputs; ++i) {
      if (values_[i].uses.empty()) continue;
      values_[i].reg = i;
      owner_[i] = i;
    }
  }

  RegisterPlan Plan() {
    for (now_ = 0; now_ < static_cast<int>(program_.instructions.size()); ++now_) {
      const ir::Instruction& instruction = program_.instructions[now_];
      if (instruction.op != ir::Op::kConst && !values_[program_.inputs + now_].uses.empty()) Lower(instruction);
    }
    plan_.result = Fetch(program_.result);
    return std::move(plan_);
  }

 private:
  struct Value {
    bool is_constant = false;
    uint32_t bits = 0;
    std::vector<int> uses;  // instruction numbers, ascending; the result is used after the last
    size_t next = 0;        // of `uses`
    int reg = kFree;
    int slot = -1;
  };

  // Backwards, so that instructions which nothing needs count for no use.
  void FindUses() {
    const int count = static_cast<int>(program_.instructions.size());
    std::vector<std::vector<int>> uses(values_.size());
    uses[program_.result].push_back(count);
    for (int i = count - 1; i >= 0; --i) {
      const ir::Instruction& instruction = program_.instructions[i];
      Value& value = values_[program_.inputs + i];
      if (instruction.op == ir::Op::kConst) {
        value.is_constant = true;
        value.bits = instruction.imm;
      }
      if (uses[program_.inputs + i].empty()) continue;
      const std::array operands = {instruction.a, instruction.b, instruction.c};
      for (int o = 0; o < ir::OperandCount(instruction.op); ++o) uses[operands[o]].push_back(i);
    }
    for (size_t v = 0; v < values_.size(); ++v) values_[v].uses.assign(uses[v].rbegin(), uses[v].rend());
  }

  int NextUse(int value) const {
    const Value& v = values_[value];
    return v.next < v.uses.size() ? v.uses[v.next] : kNever;
  }

  bool Pinned(int reg) const {
    for (const int pinned : pinned_) {
      if (pinned == reg) return true;
    }
    return false;
  }

  void Move(Operand to, Operand from) {
    Step step;
    step.to = to;
    step.a = from;
    plan_.steps.push_back(step);
  }

  // A register that no operand of the current instruction lies in.
  int Allocate() {
    int best = -1;
    for (int reg = 0; reg < static_cast<int>(owner_.size()); ++reg) {
      if (owner_[reg] == kFree) return reg;
      if (Pinned(reg) || owner_[reg] == kTemporary) continue;
      if (best < 0 || NextUse(owner_[reg]) > NextUse(owner_[best])) best = reg;
    }
    Value& evicted = values_[owner_[best]];
    if (evicted.slot < 0) {
      evicted.slot = plan_.slots++;
      Move(Operand::Slot(evicted.slot), Operand::Register(best));
    }
    evicted.reg = kFree;
    owner_[best] = kFree;
    return best;
  }

  // Brings a value to a register and keeps it there for the current instruction.
  int Fetch(int value) {
    Value& v = values_[value];
    if (v.is_constant) return Materialize(v.bits);
    if (v.reg == kFree) {
      const int reg = Allocate();
      Move(Operand::Register(reg), Operand::Slot(v.slot));
      v.reg = reg;
      owner_[reg] = value;
    }
    pinned_.push_back(v.reg);
    return v.reg;
  }

  int Materialize(uint32_t bits) {
    const int reg = Allocate();
    owner_[reg] = kTemporary;
    Move(Operand::Register(reg), Operand::Constant(bits));
    return reg;
  }

  Operand FetchOrConstant(int value) {
    if (values_[value].is_constant) return Operand::Constant(values_[value].bits);
    return Operand::Register(Fetch(value));
  }

  void IntoRegister(Operand& operand) {
    if (!operand.IsRegister()) operand = Operand::Register(Materialize(operand.value));
  }

  // The operand's register holds nothing that is needed after this instruction.
  bool DiesHere(const Operand& operand) const {
    if (!operand.IsRegister()) return false;
    const int owner = owner_[operand.value];
    return owner == kTemporary || (owner >= 0 && values_[owner].uses.back() == now_);
  }

  void ReleaseDying(const Operand& operand) {
    if (!DiesHere(operand)) return;
    const int owner = owner_[operand.value];
    if (owner >= 0) values_[owner].reg = kFree;
    owner_[operand.value] = kFree;
  }

  void Lower(const ir::Instruction& instruction) {
    pinned_.clear();
    Step step;
    step.kind = Step::Kind::kCompute;
    step.op = instruction.op;
    step.imm = instruction.imm;
    const int count = ir::OperandCount(instruction.op);
    const std::array ids = {instruction.a, instruction.b, instruction.c};
    const std::array operands = {&step.a, &step.b, &step.c};
    for (int o = 0; o < count; ++o) *operands[o] = FetchOrConstant(ids[o]);

    if (instruction.op == ir::Op::kFma) {
      PlaceFma(step);
    } else {
      if (Commutes(step.op) && !step.a.IsRegister()) std::swap(step.a, step.b);
      IntoRegister(step.a);
      if (instruction.op == ir::Op::kSelect) IntoRegister(step.c);
    }
    for (int o = 0; o < count; ++o) {
      Value& value = values_[ids[o]];
      while (value.next < value.uses.size() && value.uses[value.next] <= now_) ++value.next;
    }
    // An overwritten operand is a dying one, so its register comes free here and is taken again.
    for (const Operand* operand : operands) ReleaseDying(*operand);
    const int reg = instruction.op == ir::Op::kFma ? static_cast<int>(step.to.value) : Allocate();
    step.to = Operand::Register(reg);
    const int value = program_.inputs + now_;
    values_[value].reg = reg;
    owner_[reg] = value;
    plan_.steps.push_back(step);
  }

  void PlaceFma(Step& step) {
    if (!step.a.IsRegister() && !step.b.IsRegister()) IntoRegister(step.a);
    if (!step.c.IsRegister() && (!step.a.IsRegister() || !step.b.IsRegister())) IntoRegister(step.c);
    for (const Operand* operand : {&step.c, &step.a, &step.b}) {
      if (DiesHere(*operand)) {
        step.to = *operand;
        return;
      }
    }
    // Everything is needed later: overwrite a copy of the addend.
    const Operand addend = step.c;
    const int reg = Allocate();
    owner_[reg] = kTemporary;
    Move(Operand::Register(reg), addend);
    step.c = Operand::Register(reg);
    step.to = step.c;
  }

  const ir::Program& program_;
  std::vector<Value> values_;
  std::vector<int> owner_;  // of each register: a value, kFree or kTemporary
  std::vector<int> pinned_;
  RegisterPlan plan_;
  int now_ = 0;
};

}  // namespace

RegisterPlan PlanRegisters(const ir::Program& program, int registers) { return Planner(program, registers).Plan(); }

}  // namespace clikart::codegen
