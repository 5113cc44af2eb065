#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "../src/kernel_testing.h"
#include "avx2_code.h"
#include "clikart/ir/activation.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

// No activation needs more than sixteen registers today, so spilling is tried with fewer.
TEST(Avx2Epilogue, SpillsWhereRegistersRunOut) {
  if (Detect(CpuidRecord::Host(), IsaLevel::kAvx2).isa < IsaLevel::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
  constexpr int64_t kRows = 3;
  constexpr int64_t kColumns = 13;
  int spilled = 0;
  for (const ir::Activation activation : ir::AllActivations()) {
    const ir::Program& program = ir::ProgramOf(activation);
    ir::KernelSpec spec;
    spec.n = kColumns;
    spec.activation = activation;
    spilled += PlanRegisters(program, kFewestRegisters).slots > 0 ? 1 : 0;

    alignas(64) static uint8_t buffer[16 << 10];
    Avx2Code code(buffer);
    EmittedKernel kernel;
    kernel.entry_offsets.fill(-1);
    kernel.entry_offsets[kEpilogueEntry] = code.Epilogue(spec, kFewestRegisters);
    const size_t size = code.Finish();
    ASSERT_GT(size, 0u);
    kernel.code.assign(buffer, buffer + size);
    const LoadedKernel loaded(kernel);

    std::vector<float> c(kRows * 16);
    for (size_t i = 0; i < c.size(); ++i) c[i] = std::sin(static_cast<float>(i)) * 9.0f;
    const int64_t columns = spec.gated() ? 7 : kColumns;
    std::vector<float> y(kRows * columns);
    EpilogueArgs args;
    args.c = reinterpret_cast<const std::byte*>(c.data());
    args.y = reinterpret_cast<std::byte*>(y.data());
    args.y_stride = columns * static_cast<int64_t>(sizeof(float));
    args.rows = kRows;
    args.columns = columns;
    reinterpret_cast<void (*)(const EpilogueArgs*)>(const_cast<void*>(loaded.image().entries[kEpilogueEntry]))(&args);

    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const float inputs[2] = {c[row * 16 + column], c[(row * 16 + column + 8) % c.size()]};
        EXPECT_EQ(std::bit_cast<uint32_t>(y[row * columns + column]),
                  std::bit_cast<uint32_t>(ir::Evaluate(program, inputs)))
            << ir::Name(activation) << " row " << row << " column " << column;
      }
    }
  }
  EXPECT_GT(spilled, 3);
}

}  // namespace
}  // namespace clikart::codegen
