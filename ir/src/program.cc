#include "clikart/ir/program.h"

#include <array>

#include "fnv.h"
#include "text.h"

namespace clikart::ir {
namespace {

struct OpInfo {
  Op op;
  std::string_view name;
  int operands;
};

constexpr std::array<OpInfo, 23> kOps = {{
    {Op::kConst, "const", 0}, {Op::kAdd, "add", 2},        {Op::kSub, "sub", 2},          {Op::kMul, "mul", 2},
    {Op::kDiv, "div", 2},     {Op::kFma, "fma", 3},        {Op::kMax, "max", 2},          {Op::kMin, "min", 2},
    {Op::kLess, "less", 2},   {Op::kLessEq, "less_eq", 2}, {Op::kIsNan, "is_nan", 1},     {Op::kSelect, "select", 3},
    {Op::kAnd, "and", 2},     {Op::kOr, "or", 2},          {Op::kXor, "xor", 2},          {Op::kAndNot, "and_not", 2},
    {Op::kIntAdd, "iadd", 2}, {Op::kIntSub, "isub", 2},    {Op::kShl, "shl", 1},          {Op::kShr, "shr", 1},
    {Op::kSar, "sar", 1},     {Op::kToInt, "to_int", 1},   {Op::kToFloat, "to_float", 1},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].op != static_cast<Op>(i)) return false;
  }
  return true;
}
static_assert(InEnumOrder());

bool IsShift(Op op) { return op == Op::kShl || op == Op::kShr || op == Op::kSar; }

std::array<uint16_t, 3> Operands(const Instruction& instruction) {
  return {instruction.a, instruction.b, instruction.c};
}

}  // namespace

int OperandCount(Op op) { return kOps[static_cast<size_t>(op)].operands; }
std::string_view Name(Op op) { return kOps[static_cast<size_t>(op)].name; }

absl::Status Program::Verify() const {
  if (inputs < 1 || inputs > 2) {
    return absl::InvalidArgumentError(Text("program: ", inputs, " inputs, expected 1 or 2"));
  }
  const size_t values = static_cast<size_t>(inputs) + instructions.size();
  if (values > 65535) return absl::InvalidArgumentError(Text("program: ", values, " values, at most 65535"));
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    const size_t defined = static_cast<size_t>(inputs) + i;
    if (static_cast<size_t>(instruction.op) >= kOps.size()) {
      return absl::InvalidArgumentError(Text("v", defined, ": unknown operation ", static_cast<int>(instruction.op)));
    }
    const auto operands = Operands(instruction);
    for (int j = 0; j < 3; ++j) {
      const bool used = j < OperandCount(instruction.op);
      if (used && operands[j] >= defined) {
        return absl::InvalidArgumentError(
            Text("v", defined, " = ", Name(instruction.op), ": operand v", operands[j], " is not defined before it"));
      }
      if (!used && operands[j] != 0) {
        return absl::InvalidArgumentError(
            Text("v", defined, " = ", Name(instruction.op), ": operand ", j, " is set but not read"));
      }
    }
    if (IsShift(instruction.op) ? instruction.imm > 31 : instruction.op != Op::kConst && instruction.imm != 0) {
      return absl::InvalidArgumentError(
          Text("v", defined, " = ", Name(instruction.op), ": immediate ", instruction.imm, " out of range"));
    }
  }
  if (result >= values) return absl::InvalidArgumentError(Text("program: result v", result, " is not defined"));
  return absl::OkStatus();
}

std::string Program::ToString() const {
  std::string text;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    text += Text("v", static_cast<size_t>(inputs) + i, " = ", Name(instruction.op));
    const auto operands = Operands(instruction);
    for (int j = 0; j < OperandCount(instruction.op); ++j) {
      text += Text(j == 0 ? " v" : ", v", operands[static_cast<size_t>(j)]);
    }
    if (instruction.op == Op::kConst) text += Text(" 0x", absl::Hex(instruction.imm, absl::kZeroPad8));
    if (IsShift(instruction.op)) text += Text(", ", instruction.imm);
    text += '\n';
  }
  text += Text("return v", result, "\n");
  return text;
}

uint64_t Program::Fingerprint() const {
  Fnv1a hash;
  hash.AddWord(static_cast<uint32_t>(inputs));
  for (const Instruction& instruction : instructions) {
    hash.AddText(Name(instruction.op));
    for (uint16_t operand : Operands(instruction)) hash.AddWord(operand);
    hash.AddWord(instruction.imm);
  }
  hash.AddWord(result);
  return hash.value();
}

std::vector<int> LastUses(const Program& program) {
  std::vector<int> last(static_cast<size_t>(program.inputs) + program.instructions.size(), -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const auto operands = Operands(program.instructions[i]);
    for (int j = 0; j < OperandCount(program.instructions[i].op); ++j) {
      last[operands[static_cast<size_t>(j)]] = static_cast<int>(i);
    }
  }
  last[program.result] = static_cast<int>(program.instructions.size());
  return last;
}

}  // namespace clikart::ir
