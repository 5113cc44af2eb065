#include "clikart/analysis/kernel_loops.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace clikart::analysis {
namespace {

using codegen::Feature;

// As LLVM calls them.
constexpr auto kFeatures = std::to_array<std::pair<Feature, std::string_view>>({
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
});
static_assert(kFeatures.size() == codegen::kFeatureCount, "a feature is not listed");

// What a main loop has most of. Vectors beside matrix tiles are for few rows.
std::vector<int> ProductsOf(const std::vector<KernelLoop>& loops) {
  const auto has_tiles = [](const KernelLoop& loop) { return loop.counts.tile_products > 0; };
  const bool by_tiles = std::any_of(loops.begin(), loops.end(), has_tiles);
  std::vector<int> products;
  for (const KernelLoop& loop : loops) {
    products.push_back(by_tiles ? loop.counts.tile_products : loop.counts.multiplies);
  }
  return products;
}

// As the emitter calls it, where it says.
std::string NameOf(const codegen::EmittedKernel& kernel, const CodeRange& range) {
  for (const codegen::Loop& loop : kernel.loops) {
    if (loop.begin == range.begin && loop.end == range.end) return loop.name;
  }
  return absl::StrFormat("loop at 0x%x", range.begin);
}

}  // namespace

absl::StatusOr<std::vector<KernelLoop>> LoopsOf(const codegen::EmittedKernel& kernel) {
  const auto lines = Disassemble(std::span(kernel.code).first(static_cast<size_t>(kernel.instruction_bytes)));
  if (!lines.ok()) return lines.status();
  std::vector<KernelLoop> loops;
  for (const CodeRange& range : InnerLoops(*lines)) {
    KernelLoop loop;
    loop.name = NameOf(kernel, range);
    loop.range = range;
    const auto counts = CountLoop(CodeOf(kernel, loop));
    if (!counts.ok()) return counts.status();
    loop.counts = *counts;
    loops.push_back(std::move(loop));
  }
  // Tiles for few rows may have as many, or more where codes are decoded.
  const std::string tile = absl::StrCat("micro ", kernel.schedule.row_block, "x", kernel.schedule.panel_block, " ");
  const auto is_tile = [&](const KernelLoop& loop) { return absl::StartsWith(loop.name, tile); };
  const bool tiles_are_named = std::any_of(loops.begin(), loops.end(), is_tile);
  const std::vector<int> products = ProductsOf(loops);
  int most = 1;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (!tiles_are_named || is_tile(loops[i])) most = std::max(most, products[i]);
  }
  for (size_t i = 0; i < loops.size(); ++i) {
    loops[i].main = products[i] == most && (!tiles_are_named || is_tile(loops[i]));
  }
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
