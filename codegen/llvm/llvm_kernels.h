// For tests: a spec's kernels from LLVM.
#pragma once

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "llvm_emitter.h"
#include "quant_testing.h"

namespace clikart::codegen {

// For those of the targets that this CPU has.
inline std::vector<EmittedKernel> LlvmKernels(const ir::KernelSpec& spec, std::span<const Target> targets) {
  EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
  const auto runnable = RunnableTargets();
  std::vector<EmittedKernel> kernels;
  for (const Target& target : targets) {
    const auto has_target = [&](const Target& other) { return other.Includes(target); };
    if (std::none_of(runnable.begin(), runnable.end(), has_target)) continue;
    auto emitted = LlvmEmitter().Emit(spec, target);
    if (auto* const kernel = std::get_if<EmittedKernel>(&emitted)) {
      kernels.push_back(std::move(*kernel));
    } else {
      ADD_FAILURE() << std::get<Rejection>(emitted).detail << ": " << spec.ToString();
    }
  }
  EXPECT_FALSE(kernels.empty());
  return kernels;
}

// Words of three widths and dot products of two.
inline std::vector<EmittedKernel> LlvmCodeKernels(const ir::KernelSpec& spec) {
  const Target targets[] = {TargetOf(IsaLevel::kBaseline),
                            TargetOf(IsaLevel::kSse4),
                            TargetOf(IsaLevel::kAvx2),
                            TargetOf(IsaLevel::kAvxVnni),
                            Target{{Feature::kSse42, Feature::kAvx2, Feature::kAvx512}},
                            TargetOf(IsaLevel::kAvx512Vnni)};
  return LlvmKernels(spec, targets);
}

// In one tile and in smaller ones, with memory ending where the data ends and beginning where it begins.
inline void ExpectPortableBits(const std::vector<EmittedKernel>& kernels, const QuantProblem& problem) {
  const std::vector<float> wanted = RunQuant(problem);
  for (const EmittedKernel& kernel : kernels) {
    for (const GuardedBuffer::Edge edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
      QuantLaunch run{.kernel = &kernel, .edge = edge};
      if (edge == GuardedBuffer::Edge::kStart) run.tile_rows = 23, run.tile_panels = 3;
      const std::vector<float> got = RunQuant(problem, run);
      ASSERT_EQ(FirstDifference(ir::DType::kFloat32, std::as_bytes(std::span(got)), std::as_bytes(std::span(wanted))),
                -1)
          << Name(kernel.isa) << ", " << problem.rows << " rows of " << problem.spec.ToString();
    }
  }
}

}  // namespace clikart::codegen
