#include "clikart/ir/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "program_builder.h"

namespace clikart::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// One operation on the two inputs and their bits taken as a third operand where it has one.
float RunOne(const Instruction& instruction, float a, float b) {
  Program program;
  program.inputs = 2;
  program.instructions = {instruction};
  program.result = 2;
  EXPECT_TRUE(program.Verify().ok()) << program.Verify();
  const float inputs[] = {a, b};
  return Evaluate(program, inputs);
}
float Binary(Op op, float a, float b) { return RunOne({.op = op, .a = 0, .b = 1}, a, b); }
float Unary(Op op, float a, uint32_t imm = 0) { return RunOne({.op = op, .a = 0, .imm = imm}, a, 0.0f); }
float OfBits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(ProgramTest, ArithmeticIsIeee) {
  EXPECT_EQ(Binary(Op::kAdd, 1.0f, 0x1p-24f), 1.0f);
  EXPECT_EQ(Binary(Op::kSub, 1.0f, 3.0f), -2.0f);
  EXPECT_EQ(Binary(Op::kMul, 0x1p-75f, 0x1p-74f), 0x1p-149f);  // subnormals are kept
  EXPECT_EQ(Binary(Op::kDiv, 1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(Binary(Op::kDiv, 1.0f, -0.0f), -kInf);
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(RunOne({.op = Op::kFma, .a = 0, .b = 0, .c = 1}, x, -x * x), std::fma(x, x, -x * x));
  EXPECT_NE(RunOne({.op = Op::kFma, .a = 0, .b = 0, .c = 1}, x, -x * x), 0.0f);
}

TEST(ProgramTest, MaximumAndMinimumAnswerTheSecondOperandOnDoubt) {
  EXPECT_EQ(Binary(Op::kMax, 2.0f, 1.0f), 2.0f);
  EXPECT_EQ(Binary(Op::kMax, kNan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(Binary(Op::kMax, 1.0f, kNan)));
  EXPECT_EQ(Bits(Binary(Op::kMax, 0.0f, -0.0f)), Bits(-0.0f));
  EXPECT_EQ(Bits(Binary(Op::kMax, -0.0f, 0.0f)), Bits(0.0f));
  EXPECT_EQ(Binary(Op::kMin, 2.0f, 1.0f), 1.0f);
  EXPECT_EQ(Binary(Op::kMin, kNan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(Binary(Op::kMin, 1.0f, kNan)));
  EXPECT_EQ(Bits(Binary(Op::kMin, -0.0f, 0.0f)), Bits(0.0f));
}

TEST(ProgramTest, ComparisonsAreOrderedMasks) {
  EXPECT_EQ(Bits(Binary(Op::kLess, 1.0f, 2.0f)), 0xffffffffu);
  EXPECT_EQ(Bits(Binary(Op::kLess, 1.0f, 1.0f)), 0u);
  EXPECT_EQ(Bits(Binary(Op::kLess, kNan, 1.0f)), 0u);
  EXPECT_EQ(Bits(Binary(Op::kLessEq, -0.0f, 0.0f)), 0xffffffffu);
  EXPECT_EQ(Bits(Binary(Op::kLessEq, kNan, kNan)), 0u);
  EXPECT_EQ(Bits(Unary(Op::kIsNan, kNan)), 0xffffffffu);
  EXPECT_EQ(Bits(Unary(Op::kIsNan, kInf)), 0u);
  EXPECT_EQ(RunOne({.op = Op::kSelect, .a = 0, .b = 1, .c = 0}, OfBits(0xffffffffu), 5.0f), 5.0f);
  EXPECT_EQ(RunOne({.op = Op::kSelect, .a = 0, .b = 0, .c = 1}, 0.0f, 5.0f), 5.0f);
}

TEST(ProgramTest, BitOperations) {
  const float a = OfBits(0xf0f0000fu), b = OfBits(0x00ff00f1u);
  EXPECT_EQ(Bits(Binary(Op::kAnd, a, b)), 0x00f00001u);
  EXPECT_EQ(Bits(Binary(Op::kOr, a, b)), 0xf0ff00ffu);
  EXPECT_EQ(Bits(Binary(Op::kXor, a, b)), 0xf00f00feu);
  EXPECT_EQ(Bits(Binary(Op::kAndNot, a, b)), 0x000f00f0u);
  EXPECT_EQ(Bits(Binary(Op::kIntAdd, OfBits(0xffffffffu), OfBits(2))), 1u);
  EXPECT_EQ(Bits(Binary(Op::kIntSub, OfBits(1), OfBits(2))), 0xffffffffu);
  EXPECT_EQ(Bits(Unary(Op::kShl, a, 4)), 0x0f0000f0u);
  EXPECT_EQ(Bits(Unary(Op::kShr, a, 4)), 0x0f0f0000u);
  EXPECT_EQ(Bits(Unary(Op::kSar, a, 4)), 0xff0f0000u);
}

TEST(ProgramTest, Conversions) {
  const auto to_int = [](float value) { return static_cast<int32_t>(Bits(Unary(Op::kToInt, value))); };
  EXPECT_EQ(to_int(2.5f), 2);
  EXPECT_EQ(to_int(3.5f), 4);
  EXPECT_EQ(to_int(-2.5f), -2);
  EXPECT_EQ(to_int(2147483520.0f), 2147483520);
  for (float beyond : {0x1p31f, -0x1.8p31f, kInf, -kInf, kNan}) EXPECT_EQ(to_int(beyond), INT32_MIN) << beyond;
  EXPECT_EQ(Unary(Op::kToFloat, OfBits(16777217)), 16777216.0f);
  EXPECT_EQ(Unary(Op::kToFloat, OfBits(16777219)), 16777220.0f);
  EXPECT_EQ(Unary(Op::kToFloat, OfBits(0x80000000u)), -0x1p31f);
}

TEST(ProgramTest, LanesAgreeWithOneLane) {
  ProgramBuilder p(2);
  const Lane x = p.Input(0), y = p.Input(1);
  const Program program = p.Build(Select(Less(x, y), Fma(x, y, 1.0f), x / y));
  std::vector<float> xs, ys;
  for (int i = 0; i < 77; ++i) {
    xs.push_back(static_cast<float>(i % 13) - 6);
    ys.push_back(static_cast<float>(i % 7) - 3);
  }
  const float* inputs[] = {xs.data(), ys.data()};
  for (int64_t lanes : {0, 1, 31, 32, 33, 77}) {
    std::vector<float> out(80, -99.0f);
    EvaluateLanes(program, inputs, lanes, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      if (static_cast<int64_t>(i) >= lanes) {
        EXPECT_EQ(out[i], -99.0f);
        continue;
      }
      const float one[] = {xs[i], ys[i]};
      const float wanted = Evaluate(program, one);
      EXPECT_TRUE(out[i] == wanted || (std::isnan(out[i]) && std::isnan(wanted))) << i;
    }
  }
  std::vector<float> in_place = xs;
  const float* aliased[] = {in_place.data(), ys.data()};
  EvaluateLanes(program, aliased, 77, in_place.data());
  const float last[] = {xs[76], ys[76]};
  EXPECT_EQ(in_place[76], Evaluate(program, last));
}

Program Sample() {
  ProgramBuilder p(1);
  return p.Build(Max(p.Input(0) * 2.0f, p.Input(0)));
}

TEST(ProgramTest, TextAndFingerprint) {
  EXPECT_EQ(Sample().ToString(), "v1 = const 0x40000000\nv2 = mul v0, v1\nv3 = max v2, v0\nreturn v3\n");
  const uint64_t base = Sample().Fingerprint();
  EXPECT_EQ(base, Sample().Fingerprint());
  EXPECT_EQ(Program{}.Fingerprint(), Program{}.Fingerprint());
  Program changed = Sample();
  changed.instructions[0].imm ^= 1;
  EXPECT_NE(changed.Fingerprint(), base);
  changed = Sample();
  changed.instructions[2].op = Op::kMin;
  EXPECT_NE(changed.Fingerprint(), base);
  changed = Sample();
  changed.instructions[2].a = 1;
  EXPECT_NE(changed.Fingerprint(), base);
  changed = Sample();
  changed.result = 2;
  EXPECT_NE(changed.Fingerprint(), base);
  changed = Sample();
  changed.inputs = 2;
  EXPECT_NE(changed.Fingerprint(), base);
}

TEST(ProgramTest, VerifyNamesTheValue) {
  const auto message = [](auto mutate) {
    Program program = Sample();
    mutate(program);
    return std::string(program.Verify().message());
  };
  EXPECT_TRUE(Sample().Verify().ok());
  EXPECT_TRUE(Program{}.Verify().ok());
  EXPECT_TRUE(Program{}.IsIdentity());
  EXPECT_FALSE(Sample().IsIdentity());
  EXPECT_THAT(message([](Program& p) { p.inputs = 0; }), HasSubstr("0 inputs"));
  EXPECT_THAT(message([](Program& p) { p.inputs = 3; }), HasSubstr("3 inputs"));
  EXPECT_THAT(message([](Program& p) { p.instructions[1].a = 2; }), HasSubstr("v2 = mul: operand v2"));
  EXPECT_THAT(message([](Program& p) { p.instructions[1].c = 1; }), HasSubstr("v2 = mul: operand 2 is set"));
  EXPECT_THAT(message([](Program& p) { p.instructions[1].imm = 1; }), HasSubstr("immediate 1"));
  EXPECT_THAT(message([](Program& p) { p.instructions[1] = {.op = Op::kShl, .a = 0, .imm = 32}; }),
              HasSubstr("immediate 32"));
  EXPECT_THAT(message([](Program& p) { p.instructions[1].op = static_cast<Op>(99); }), HasSubstr("unknown operation"));
  EXPECT_THAT(message([](Program& p) { p.result = 4; }), HasSubstr("result v4"));
}

TEST(ProgramTest, LastUses) {
  // v0 is read by 2, v1 (a constant) by 1, v2 by 2, v3 is the result.
  EXPECT_THAT(LastUses(Sample()), ElementsAre(2, 1, 2, 3));
  Program two;
  two.inputs = 2;
  EXPECT_THAT(LastUses(two), ElementsAre(0, -1));
}

TEST(ProgramBuilderTest, SharesAndDropsValues) {
  ProgramBuilder p(1);
  const Lane x = p.Input(0);
  const Lane unused = x / 7.0f;
  (void)unused;
  const Program program = p.Build((x + 1.0f) * (x + 1.0f));
  EXPECT_EQ(program.ToString(), "v1 = const 0x3f800000\nv2 = add v0, v1\nv3 = mul v2, v2\nreturn v3\n");
  EXPECT_TRUE(program.Verify().ok());
}

TEST(ProgramBuilderTest, ZerosOfBothSignsAreDifferentConstants) {
  ProgramBuilder p(1);
  const Program program = p.Build(Max(p.Input(0) + 0.0f, p.Input(0) + -0.0f));
  EXPECT_EQ(program.instructions.size(), 5);
}

}  // namespace
}  // namespace clikart::ir
