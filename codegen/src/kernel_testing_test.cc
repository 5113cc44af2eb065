#include "kernel_testing.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

TEST(KernelTesting, GuardPagesAreThere) {
  for (const auto edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
    const GuardedBuffer buffer(100, edge);
    std::memset(buffer.data(), 1, buffer.bytes());
    volatile std::byte* const outside = edge == GuardedBuffer::Edge::kEnd ? buffer.data() + 100 : buffer.data() - 1;
    EXPECT_DEATH(static_cast<void>(*outside), "");
  }
}

// The judge of native sums of quantized weights takes rule 3's own, and no others.
TEST(KernelTesting, ABoundOfGroupsHasASizeOfErrors) {
  for (const char* const scheme : {"int4_g32_asym", "int4_g32_min", "mxfp4"}) {
    ir::KernelSpec spec = SchemeSpec(ir::Contraction::kWeightOnly, scheme, 3, 80);
    spec.x = ir::DType::kBFloat16;
    const QuantProblem problem = RandomQuantProblem(spec, 2, {3}, 1);
    std::vector<float> sums = Contract(problem);
    EXPECT_EQ(FirstBeyondBound(problem, sums), -1) << scheme;
    sums[4] += static_cast<float>(0x1p-12 * InDouble(problem).magnitude[4]);
    EXPECT_EQ(FirstBeyondBound(problem, sums), 4) << scheme;
    sums[1] = NAN;
    EXPECT_EQ(FirstBeyondBound(problem, sums), 1) << scheme;
  }
}

}  // namespace
}  // namespace clikart::codegen
