#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "../../src/kernel_testing.h"
#include "../avx2/avx2_code.h"
#include "clikart/ir/activation.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

class Avx2EpilogueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Detect(CpuidRecord::Host(), IsaLevel::kAvx2).Has(Feature::kAvx2)) GTEST_SKIP() << "this CPU has no AVX2";
  }

  // Runs the generated program on every row of accumulators (sixteen each; gated: eight gates, eight
  // ups) and compares with the oracle, bit by bit but for NaNs.
  static void Check(const ir::Program& program, int registers, const std::vector<float>& c, const std::string& what) {
    ir::KernelSpec spec;
    spec.activation = program.inputs == 2 ? ir::Activation::kSwiglu : ir::Activation::kNone;
    alignas(64) static uint8_t buffer[16 << 10];
    Avx2Code code(buffer);
    EmittedKernel kernel;
    kernel.entry_offsets.fill(-1);
    kernel.entry_offsets[kEpilogueEntry] = code.Epilogue(spec, program, registers);
    const size_t size = code.Finish();
    ASSERT_GT(size, 0u) << what;
    kernel.code.assign(buffer, buffer + size);
    const LoadedKernel loaded(kernel);

    const int64_t columns = spec.gated() ? 7 : 13;
    const int64_t rows = static_cast<int64_t>(c.size()) / 16;
    std::vector<float> y(rows * columns);
    EpilogueArgs args;
    args.c = reinterpret_cast<const std::byte*>(c.data());
    args.y = reinterpret_cast<std::byte*>(y.data());
    args.y_stride = columns * static_cast<int64_t>(sizeof(float));
    args.rows = rows;
    args.columns = columns;
    reinterpret_cast<void (*)(const EpilogueArgs*)>(const_cast<void*>(loaded.image().entries[kEpilogueEntry]))(&args);

    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const float inputs[2] = {c[row * 16 + column], spec.gated() ? c[row * 16 + 8 + column] : 0.0f};
        const float wanted = ir::Evaluate(program, inputs);
        const float got = y[row * columns + column];
        EXPECT_TRUE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(wanted) ||
                    (std::isnan(got) && std::isnan(wanted)))
            << what << " of " << inputs[0] << ", " << inputs[1] << ": " << got << " not " << wanted;
      }
    }
  }
};

// No activation needs more than sixteen registers today, so spilling is tried with fewer.
TEST_F(Avx2EpilogueTest, SpillsWhereRegistersRunOut) {
  std::vector<float> c(3 * 16);
  for (size_t i = 0; i < c.size(); ++i) c[i] = std::sin(static_cast<float>(i)) * 9.0f;
  int spilled = 0;
  for (const ir::Activation activation : ir::AllActivations()) {
    const ir::Program& program = ir::ProgramOf(activation);
    spilled += PlanRegisters(program, kFewestRegisters).slots > 0 ? 1 : 0;
    Check(program, kFewestRegisters, c, std::string(ir::Name(activation)));
  }
  EXPECT_GT(spilled, 3);
}

// Every operation on pairs of values in registers, and with a constant in either place.
TEST_F(Avx2EpilogueTest, EveryOperation) {
  const std::vector<float> values = {0.0f, -0.0f,     1.0f,     -1.0f,     2.5f,          3.5f,     -7.75f,  1e-40f,
                                     3e9f, -2.5e-38f, INFINITY, -INFINITY, std::nanf(""), 1.0f / 3, 65504.0f};
  // Rows of eight gates beside eight ups, so that every pair of values meets.
  std::vector<float> c;
  for (const float up : values) {
    for (size_t first = 0; first < values.size(); first += 7) {
      for (size_t lane = 0; lane < 8; ++lane) c.push_back(values[(first + lane) % values.size()]);
      c.insert(c.end(), 8, up);
    }
  }
  for (int number = 0; number <= static_cast<int>(ir::Op::kToFloat); ++number) {
    const auto op = static_cast<ir::Op>(number);
    const std::string name(ir::Name(op));
    if (op == ir::Op::kConst) continue;
    for (const uint32_t constant : {std::bit_cast<uint32_t>(1.0f), std::bit_cast<uint32_t>(-0.0f), 0x7fc00000u}) {
      // Values 0 and 1 are the inputs, 2 the constant, 3 a mask.
      ir::Program program;
      program.inputs = 2;
      program.instructions = {{ir::Op::kConst, 0, 0, 0, constant}, {ir::Op::kLessEq, 0, 1, 0, 0}};
      program.result = 4;
      const bool shift = op == ir::Op::kShl || op == ir::Op::kShr || op == ir::Op::kSar;
      for (const uint32_t imm : {0u, 3u, 31u}) {
        if (!shift && imm != 0) continue;
        for (uint16_t a = 0; a < 3; ++a) {
          for (uint16_t b = 0; b < 3; ++b) {
            for (uint16_t third = 0; third < 3; ++third) {
              if (third > 0 && ir::OperandCount(op) < 3) continue;
              ir::Program all = program;
              const ir::Instruction select{op, 3, a, b, 0};
              all.instructions.push_back(op == ir::Op::kSelect ? select : ir::Instruction{op, a, b, third, imm});
              Check(all, 16, c, name);
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
