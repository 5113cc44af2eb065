#include "register_plan.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "clikart/ir/activation.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

// Runs one operation through the oracle, as a program of its own.
float Apply(const Step& step, float a, float b, float c) {
  ir::Program program;
  program.inputs = 3;
  program.instructions.push_back({step.op, 0, 1, 2, step.imm});
  program.result = 3;
  const float* const inputs[3] = {&a, &b, &c};
  float result = 0;
  ir::EvaluateLanes(program, inputs, 1, &result);
  return result;
}

// Plays the steps, checking on the way what the header promises about them.
float Play(const RegisterPlan& plan, int registers, const float* inputs, int input_count) {
  std::vector<float> file(registers, std::numeric_limits<float>::signaling_NaN());
  std::vector<float> slots(plan.slots);
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): every caller gives as many as its program reads
  for (int i = 0; i < input_count; ++i) file[i] = inputs[i];
  const auto read = [&](const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kRegister:
        return file.at(operand.value);
      case Operand::Kind::kConstant:
        return std::bit_cast<float>(operand.value);
      case Operand::Kind::kSlot:
        return slots.at(operand.value);
      case Operand::Kind::kNone:
        break;
    }
    return 0.0f;
  };
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kMove) {
      (step.to.IsRegister() ? file.at(step.to.value) : slots.at(step.to.value)) = read(step.a);
      continue;
    }
    EXPECT_TRUE(step.to.IsRegister());
    if (step.op == ir::Op::kFma) {
      EXPECT_TRUE(step.to == step.a || step.to == step.b || step.to == step.c);
      EXPECT_LE(!step.a.IsRegister() + !step.b.IsRegister() + !step.c.IsRegister(), 1);
    } else {
      EXPECT_TRUE(step.a.IsRegister());
      EXPECT_TRUE(step.op != ir::Op::kSelect || step.c.IsRegister());
    }
    file.at(step.to.value) = Apply(step, read(step.a), read(step.b), read(step.c));
  }
  return file.at(plan.result);
}

TEST(RegisterPlan, EveryActivationInAnyNumberOfRegisters) {
  const std::vector<float> values = {-0.0f, 0.5f, 1.0f, -3.25f, 20.0f, -200.0f, 1e-40f, INFINITY, -INFINITY, NAN};
  for (const ir::Activation activation : ir::AllActivations()) {
    const ir::Program& program = ir::ProgramOf(activation);
    for (const int registers : {kFewestRegisters, 6, 8, 16, 32}) {
      const RegisterPlan plan = PlanRegisters(program, registers);
      for (const float gate : values) {
        for (const float up : {2.0f, -0.75f}) {
          const float inputs[2] = {gate, up};
          const float got = Play(plan, registers, inputs, program.inputs);
          const float wanted = ir::Evaluate(program, inputs);
          EXPECT_TRUE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(wanted) ||
                      (std::isnan(got) && std::isnan(wanted)))
              << ir::Name(activation) << "(" << gate << ", " << up << ") in " << registers << ": " << got << " not "
              << wanted;
        }
      }
    }
  }
}

TEST(RegisterPlan, SpillsOnlyWhereItMust) {
  for (const ir::Activation activation : ir::AllActivations()) {
    EXPECT_EQ(PlanRegisters(ir::ProgramOf(activation), 16).slots, 0) << ir::Name(activation);
  }
}

TEST(RegisterPlan, ConstantsInEveryPlace) {
  ir::Program program;
  program.inputs = 1;
  program.instructions = {
      {ir::Op::kConst, 0, 0, 0, std::bit_cast<uint32_t>(2.0f)},  // 1
      {ir::Op::kConst, 0, 0, 0, std::bit_cast<uint32_t>(3.0f)},  // 2
      {ir::Op::kFma, 0, 1, 2, 0},                                // 3 = 2x + 3
      {ir::Op::kFma, 1, 2, 0, 0},                                // 4 = 6 + x
      {ir::Op::kFma, 1, 2, 1, 0},                                // 5 = 8
      {ir::Op::kSub, 1, 0, 0, 0},                                // 6 = 2 - x
      {ir::Op::kSub, 1, 2, 0, 0},                                // 7 = -1
      {ir::Op::kLess, 1, 0, 0, 0},                               // 8 = 2 < x
      {ir::Op::kSelect, 8, 1, 2, 0},                             // 9 = 2 or 3
      {ir::Op::kFma, 3, 4, 5, 0},                                // 10
      {ir::Op::kFma, 6, 7, 9, 0},                                // 11
      {ir::Op::kMul, 10, 10, 0, 0},                              // 12
      {ir::Op::kFma, 11, 11, 11, 0},                             // 13
      {ir::Op::kFma, 12, 13, 3, 0},                              // 14
      {ir::Op::kFma, 14, 3, 0, 0},                               // 15
  };
  program.result = 15;
  for (const float x : {1.0f, 5.0f}) {
    for (const int registers : {kFewestRegisters, 16}) {
      EXPECT_EQ(Play(PlanRegisters(program, registers), registers, &x, 1), ir::Evaluate(program, &x));
    }
  }
}

TEST(RegisterPlan, ResultIsAConstantOrAnInput) {
  ir::Program program;
  program.inputs = 2;
  program.result = 1;
  const float inputs[2] = {4.0f, 7.0f};
  EXPECT_EQ(Play(PlanRegisters(program, 16), 16, inputs, 2), 7.0f);
  program.instructions.push_back({ir::Op::kConst, 0, 0, 0, std::bit_cast<uint32_t>(9.0f)});
  program.result = 2;
  EXPECT_EQ(Play(PlanRegisters(program, 16), 16, inputs, 2), 9.0f);
}

}  // namespace
}  // namespace clikart::codegen
