// Writes programs as expressions: `x * 2.0f + y` appends a constant, a mul and an add.
//
//   ProgramBuilder p(1);
//   Lane x = p.Input(0);
//   return p.Build(Max(p.Const(0.0f), x));
//
// Values that are computed twice are shared, values that nothing reads are left out. Contraction
// never happens: a fused multiply-add is written Fma(a, b, c).
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "clikart/ir/program.h"

namespace clikart::ir {

class ProgramBuilder;

// One value of a program under construction.
class Lane {
 public:
  Lane(ProgramBuilder* builder, uint16_t index) : builder_(builder), index_(index) {}
  ProgramBuilder& builder() const { return *builder_; }
  uint16_t index() const { return index_; }

 private:
  ProgramBuilder* builder_;
  uint16_t index_;
};

class ProgramBuilder {
 public:
  explicit ProgramBuilder(int inputs) : inputs_(inputs) {}

  Lane Input(int i) { return Lane(this, static_cast<uint16_t>(i)); }
  Lane Const(float value) { return ConstBits(std::bit_cast<uint32_t>(value)); }
  Lane ConstBits(uint32_t bits) { return Emit({.op = Op::kConst, .imm = bits}); }
  Lane Emit(const Instruction& instruction);

  // The finished program: what `result` needs and nothing else.
  Program Build(Lane result) const;

 private:
  using Key = std::tuple<Op, uint16_t, uint16_t, uint16_t, uint32_t>;
  int inputs_;
  std::vector<Instruction> instructions_;
  std::map<Key, uint16_t> known_;
};

inline Lane Emit2(Op op, Lane a, Lane b) { return a.builder().Emit({.op = op, .a = a.index(), .b = b.index()}); }
inline Lane Emit1(Op op, Lane a, uint32_t imm = 0) { return a.builder().Emit({.op = op, .a = a.index(), .imm = imm}); }
inline Lane Emit3(Op op, Lane a, Lane b, Lane c) {
  return a.builder().Emit({.op = op, .a = a.index(), .b = b.index(), .c = c.index()});
}

inline Lane operator+(Lane a, Lane b) { return Emit2(Op::kAdd, a, b); }
inline Lane operator-(Lane a, Lane b) { return Emit2(Op::kSub, a, b); }
inline Lane operator*(Lane a, Lane b) { return Emit2(Op::kMul, a, b); }
inline Lane operator/(Lane a, Lane b) { return Emit2(Op::kDiv, a, b); }
inline Lane operator+(Lane a, float b) { return a + a.builder().Const(b); }
inline Lane operator-(Lane a, float b) { return a - a.builder().Const(b); }
inline Lane operator*(Lane a, float b) { return a * a.builder().Const(b); }
inline Lane operator/(Lane a, float b) { return a / a.builder().Const(b); }

inline Lane Fma(Lane a, Lane b, Lane c) { return Emit3(Op::kFma, a, b, c); }
inline Lane Fma(Lane a, float b, Lane c) { return Fma(a, a.builder().Const(b), c); }
inline Lane Fma(Lane a, Lane b, float c) { return Fma(a, b, a.builder().Const(c)); }
inline Lane Fma(Lane a, float b, float c) { return Fma(a, a.builder().Const(b), a.builder().Const(c)); }

// bound > x ? bound : x, and bound < x ? bound : x: the bound comes first so that NaN stays NaN.
inline Lane AtLeast(float bound, Lane x) { return Emit2(Op::kMax, x.builder().Const(bound), x); }
inline Lane AtMost(float bound, Lane x) { return Emit2(Op::kMin, x.builder().Const(bound), x); }
// x > 0 ? x : +0. NaN and -0 give +0.
inline Lane PositivePart(Lane x) { return Emit2(Op::kMax, x, x.builder().Const(0.0f)); }

inline Lane Max(Lane a, Lane b) { return Emit2(Op::kMax, a, b); }
inline Lane Less(Lane a, Lane b) { return Emit2(Op::kLess, a, b); }
inline Lane Less(Lane a, float b) { return Less(a, a.builder().Const(b)); }
inline Lane Select(Lane mask, Lane yes, Lane no) { return Emit3(Op::kSelect, mask, yes, no); }

inline Lane SignMask(ProgramBuilder& p) { return p.ConstBits(0x80000000u); }
inline Lane Sign(Lane x) { return Emit2(Op::kAnd, x, SignMask(x.builder())); }
inline Lane NegativeAbs(Lane x) { return Emit2(Op::kOr, x, SignMask(x.builder())); }
inline Lane Abs(Lane x) { return Emit2(Op::kAndNot, SignMask(x.builder()), x); }
// |magnitude| with the sign bits `sign`.
inline Lane WithSign(Lane magnitude, Lane sign) { return Emit2(Op::kOr, Abs(magnitude), sign); }

inline Lane ToInt(Lane x) { return Emit1(Op::kToInt, x); }
inline Lane ToFloat(Lane x) { return Emit1(Op::kToFloat, x); }
inline Lane IntAdd(Lane a, Lane b) { return Emit2(Op::kIntAdd, a, b); }
inline Lane IntSub(Lane a, Lane b) { return Emit2(Op::kIntSub, a, b); }
inline Lane Shl(Lane a, uint32_t count) { return Emit1(Op::kShl, a, count); }
inline Lane Sar(Lane a, uint32_t count) { return Emit1(Op::kSar, a, count); }

}  // namespace clikart::ir
