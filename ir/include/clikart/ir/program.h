// A straight-line program over 32-bit lanes: how activations are written once for every emitter.
//
// Each operation yields one value; operands are indices of earlier values. The values 0..inputs-1
// are the inputs. A lane holds 32 bits, read as f32 or as an integer by the operation. Every
// operation is exact or rounds to nearest even as IEEE-754 says, so all emitters agree on each bit
// (NaN payloads aside).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace clikart::ir {

enum class Op : uint8_t {
  kConst,   // imm: 32 bits
  kAdd,     // a + b
  kSub,     // a - b
  kMul,     // a * b
  kDiv,     // a / b
  kFma,     // a * b + c, one rounding
  kMax,     // a > b ? a : b   (x86 maxps: b when either is NaN or both are zeros)
  kMin,     // a < b ? a : b
  kLess,    // a < b   ? all ones : 0   (ordered: false for NaN)
  kLessEq,  // a <= b  ? all ones : 0
  kIsNan,   // a != a  ? all ones : 0
  kSelect,  // a (a mask of all ones or zeros) ? b : c
  kAnd,     // bits
  kOr,
  kXor,
  kAndNot,  // ~a & b
  kIntAdd,  // two's complement, wrapping
  kIntSub,
  kShl,      // a << imm
  kShr,      // a >> imm, zeros come in
  kSar,      // a >> imm, the sign comes in
  kToInt,    // f32 -> s32, round to nearest even; out of range or NaN: 0x80000000
  kToFloat,  // s32 -> f32, round to nearest even
};

struct Instruction {
  Op op;
  uint16_t a = 0, b = 0, c = 0;  // operands, by value index
  uint32_t imm = 0;              // kConst: the bits; shifts: the count
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Program {
  int inputs = 1;                         // 1 pointwise, 2 gated (0: gate, 1: up)
  std::vector<Instruction> instructions;  // value i + inputs
  uint16_t result = 0;                    // the value that is the program's answer

  bool IsIdentity() const { return instructions.empty() && result == 0; }
  absl::Status Verify() const;   // operands defined before use, imm in range
  std::string ToString() const;  // one line an instruction: "v3 = fma v1, v0, v2"
  uint64_t Fingerprint() const;  // stable over processes and builds
  friend bool operator==(const Program&, const Program&) = default;
};

int OperandCount(Op op);
std::string_view Name(Op op);

// For each value the index of the last instruction that reads it: what a register allocator frees
// by. -1: nothing reads it; instructions.size(): it is the result.
std::vector<int> LastUses(const Program& program);

// Runs the program on one lane, with explicit fma and no contraction: the oracle.
float Evaluate(const Program& program, const float* inputs);

// Runs it on `lanes` lanes: input i of lane j is inputs[i][j]. `out` may be one of the inputs.
void EvaluateLanes(const Program& program, std::span<const float* const> inputs, int64_t lanes, float* out);

}  // namespace clikart::ir
