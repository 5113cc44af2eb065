#include "clikart/analysis/kernel_loops.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"

namespace clikart::analysis {
namespace {

using codegen::Feature;

// As LLVM calls them.
constexpr std::array<std::pair<Feature, std::string_view>, codegen::kFeatureCount> kFeatures = {{
    {Feature::kSse42, "+sse4.2,+popcnt"},
    {Feature::kAvx2, "+avx2,+fma,+f16c,+bmi,+bmi2"},
    {Feature::kAvxVnni, "+avxvnni"},
    {Feature::kAvx512, "+avx512f,+avx512bw,+avx512vl,+avx512dq"},
    {Feature::kAvx512Vnni, "+avx512vnni"},
    {Feature::kAvx512Bf16, "+avx512bf16"},
    {Feature::kAvx512Fp16, "+avx512fp16"},
    {Feature::kAmxInt8, "+amx-int8"},
    {Feature::kAmxBf16, "+amx-bf16"},
    {Feature::kAmxFp16, "+amx-fp16"},
}};

int Products(const LoopCounts& counts) { return counts.multiplies + counts.tile_products; }

}  // namespace

absl::StatusOr<std::vector<KernelLoop>> LoopsOf(const codegen::EmittedKernel& kernel) {
  const auto lines = Disassemble(std::span(kernel.code).first(static_cast<size_t>(kernel.instruction_bytes)));
  if (!lines.ok()) return lines.status();
  std::vector<KernelLoop> loops;
  int most = 1;
  for (const CodeRange& range : InnerLoops(*lines)) {
    KernelLoop loop;
    loop.name = absl::StrFormat("loop at 0x%x", range.begin);
    loop.range = range;
    const auto counts = CountLoop(CodeOf(kernel, loop));
    if (!counts.ok()) return counts.status();
    loop.counts = *counts;
    most = std::max(most, Products(*counts));
    loops.push_back(std::move(loop));
  }
  for (KernelLoop& loop : loops) loop.main = Products(loop.counts) == most;
  return loops;
}

std::span<const uint8_t> CodeOf(const codegen::EmittedKernel& kernel, const KernelLoop& loop) {
  return std::span(kernel.code)
      .subspan(static_cast<size_t>(loop.range.begin), static_cast<size_t>(loop.range.end - loop.range.begin));
}

codegen::Target TargetOfCpu(std::string_view cpu, codegen::IsaLevel cap) {
  const codegen::Target allowed = codegen::TargetOf(cap);
  codegen::Target target;
  for (const auto& [feature, llvm_features] : kFeatures) {
    if (allowed.Has(feature) && CpuHas(cpu, llvm_features)) target.features.Add(feature);
  }
  return target;
}

}  // namespace clikart::analysis
