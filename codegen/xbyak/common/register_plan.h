// Puts a program's values into registers: from ir::Program to steps over numbered registers and
// spill slots. It knows no instruction set but for one trait of x86: fma overwrites one of its
// operands, and each operation may take one operand from memory.
#pragma once

#include <cstdint>
#include <vector>

#include "clikart/ir/program.h"

namespace clikart::codegen {

struct Operand {
  enum class Kind : uint8_t { kNone, kRegister, kConstant, kSlot } kind = Kind::kNone;
  uint32_t value = 0;  // register or slot number; a constant's bits

  static Operand Register(int number) { return {Kind::kRegister, static_cast<uint32_t>(number)}; }
  static Operand Constant(uint32_t bits) { return {Kind::kConstant, bits}; }
  static Operand Slot(int number) { return {Kind::kSlot, static_cast<uint32_t>(number)}; }
  bool IsRegister() const { return kind == Kind::kRegister; }
  friend bool operator==(const Operand&, const Operand&) = default;
};

// What a backend translates one to one. Compute: `to` is a register, and
//  - binary operations and unary ones: a is a register, b a register or a constant;
//  - kFma: `to` is one of a, b, c; at most one of the other two is a constant;
//  - kSelect: a and c are registers, b a register or a constant.
struct Step {
  enum class Kind : uint8_t {
    kMove,     // to = a; one of them is a register, the other a register, slot or (a) constant
    kCompute,  // to = op(a, b, c, imm)
  } kind = Kind::kMove;
  ir::Op op = ir::Op::kConst;
  Operand to, a, b, c;
  uint32_t imm = 0;
};

struct RegisterPlan {
  std::vector<Step> steps;
  int result = 0;  // register that holds the answer at the end
  int slots = 0;   // spill slots used
};

inline constexpr int kFewestRegisters = 5;  // three operands, a result and a constant at once

// Input i is in register i when the steps begin. `registers` is at least kFewestRegisters and more
// than the program's inputs. Spills the value whose next use is farthest.
RegisterPlan PlanRegisters(const ir::Program& program, int registers);

}  // namespace clikart::codegen
