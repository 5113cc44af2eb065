// Integer kernels from LLVM against rule 6 word by word, in every form that this CPU can run.
#include <cstdint>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "llvm_kernels.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

using ir::Activation;
using ir::BiasKind;
using ir::DType;
using ir::KernelSpec;
using Edge = GuardedBuffer::Edge;

void ExpectRule6(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem) {
  const std::vector<float> wanted = WordByWord(problem);
  for (const EmittedKernel& kernel : kernels) {
    for (const Edge edge : {Edge::kEnd, Edge::kStart}) {
      QuantLaunch run;
      run.kernel = &kernel;
      run.edge = edge;
      if (edge == Edge::kStart) run.tile_rows = 5, run.tile_panels = 2;
      const std::vector<float> got = RunQuant(problem, run);
      ASSERT_EQ(FirstDifference(DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted))), -1)
          << Name(kernel.isa) << ", " << problem.rows << " rows of " << problem.spec.ToString();
    }
  }
}

void ExpectRule6(const KernelSpec& spec, std::initializer_list<int64_t> row_counts, uint64_t seed) {
  const std::vector<EmittedKernel> kernels = LlvmCodeKernels(spec);
  for (const int64_t rows : row_counts) {
    ExpectRule6(kernels, RandomQuantProblem(spec, rows, {spec.n}, seed + static_cast<uint64_t>(rows)));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(LlvmIntegerTest, EveryRowCount) {
  for (const DType x : {DType::kInt8, DType::kUInt8}) {
    ExpectRule6(IntegerSpec(x, 37, 29), {1, 2, 3, 4, 5, 6, 7, 8, 13, 19, 40, 49, 60}, 1);
    ExpectRule6(Requantized(IntegerSpec(x, 83, 12)), {1, 6, 17, 53}, 2);
  }
}

TEST(LlvmIntegerTest, RemaindersOfDepthAndWidth) {
  for (const int64_t k : {0, 1, 2, 3, 4, 5, 6, 7, 15, 32, 35}) {
    ExpectRule6(IntegerSpec(k % 2 == 0 ? DType::kInt8 : DType::kUInt8, 20, k), {1, 9}, 3);
  }
  for (const int64_t n : {1, 3, 4, 7, 8, 9, 15, 16, 18}) {
    KernelSpec spec = IntegerSpec(DType::kUInt8, n, 21);
    if (n % 2 == 0) spec = Requantized(spec);
    if (n % 3 == 0) spec.bias = BiasKind::kFloat32;
    ExpectRule6(spec, {3}, static_cast<uint64_t>(n));
  }
}

TEST(LlvmIntegerTest, DepthBlocksAndDeepSums) {
  for (const int64_t k : {1023, 1024, 1027, 4100}) ExpectRule6(IntegerSpec(DType::kInt8, 35, k), {2, 17}, 4);
  ExpectRule6(IntegerSpec(DType::kUInt8, 20, 70'001), {2, 7}, 5);
}

TEST(LlvmIntegerTest, Activations) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSwiglu, Activation::kReglu}) {
    for (const DType x : {DType::kInt8, DType::kUInt8}) {
      KernelSpec spec = IntegerSpec(x, 42, 18);
      spec.activation = activation;
      if (!spec.gated()) spec.bias = BiasKind::kFloat32;
      ExpectRule6(x == DType::kInt8 ? Requantized(spec) : spec, {4}, static_cast<uint64_t>(activation));
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
