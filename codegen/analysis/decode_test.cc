// Every kernel of every emitter for every kind of target, instruction by instruction: LLVM's disassembler
// knows each of them, and none is above the target or above the level that the kernel says it needs.
#include <algorithm>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clikart/analysis/disassembly.h"
#include "clikart/analysis/extensions.h"
#include "clikart/codegen/emitter.h"
#include "clikart/ir/activation.h"
#include "clikart/ir/code_layout.h"
#include "gtest/gtest.h"
#include "kernel_testing.h"
#include "quant_testing.h"

namespace clikart::analysis {
namespace {

using codegen::EmittedKernel;
using codegen::Emitter;
using codegen::Feature;
using codegen::IsaLevel;
using codegen::Target;
using ir::DType;

// What a piece of code needs, and for each extension the first instruction that needs it.
struct Needs {
  ExtensionSet extensions;
  std::map<Extension, std::string> first;
  int64_t instructions = 0;
};

Needs Read(const EmittedKernel& kernel) {
  Needs needs;
  const std::span<const uint8_t> code(kernel.code.data(), static_cast<size_t>(kernel.instruction_bytes));
  const absl::StatusOr<std::vector<Line>> lines = Disassemble(code);
  if (!lines.ok()) {
    ADD_FAILURE() << kernel.emitter << ", " << kernel.spec.ToString() << ": " << lines.status();
    return needs;
  }
  for (const Line& line : *lines) {
    const ExtensionSet set = ExtensionsOf(code.subspan(line.offset, line.bytes), line.text);
    for (int i = 0; i < kExtensionCount; ++i) {
      const auto extension = static_cast<Extension>(i);
      if (!set.Has(extension)) continue;
      needs.extensions.Add(extension);
      needs.first.emplace(extension, line.text);
    }
  }
  needs.instructions = static_cast<int64_t>(lines->size());
  return needs;
}

// What of `needs` a target does not have, as text.
std::string Beyond(const Target& target, const Needs& needs) {
  std::string text;
  for (const auto& [extension, line] : needs.first) {
    ExtensionSet one;
    one.Add(extension);
    if (!Allows(target, one)) absl::StrAppend(&text, std::string(Name(extension)), ": ", line, "; ");
  }
  return text;
}

IsaLevel LowestLevel(const Needs& needs) {
  for (const IsaLevel level : codegen::AllIsaLevels()) {
    if (Allows(codegen::TargetOf(level), needs.extensions)) return level;
  }
  return codegen::kWidestIsa;
}

// Every level, and CPUs that lack something below their level: Skylake-X, Ice Lake and Zen 4 have no AVX-VNNI, Zen 5
// no AVX512-FP16, Sapphire Rapids no AMX-FP16; tiles of one kind alone come from hypervisors.
std::vector<Target> Targets() {
  std::vector<Target> targets;
  for (const IsaLevel level : codegen::AllIsaLevels()) targets.push_back(codegen::TargetOf(level));
  const auto without = [&](IsaLevel level, std::initializer_list<Feature> lacking) {
    Target target;
    for (int i = 0; i < codegen::kFeatureCount; ++i) {
      const auto feature = static_cast<Feature>(i);
      const bool lacks = std::find(lacking.begin(), lacking.end(), feature) != lacking.end();
      if (codegen::TargetOf(level).Has(feature) && !lacks) target.features.Add(feature);
    }
    targets.push_back(target);
  };
  using enum Feature;
  without(IsaLevel::kAvx512, {kAvxVnni});
  without(IsaLevel::kAvx512Vnni, {kAvxVnni});
  without(IsaLevel::kAvx512Bf16, {kAvxVnni});
  without(IsaLevel::kAvx512Bf16, {kAvxVnni, kAvx512Vnni});
  without(IsaLevel::kAmx, {kAmxFp16});
  without(IsaLevel::kAmx, {kAmxFp16, kAmxInt8});
  without(IsaLevel::kAmx, {kAmxFp16, kAmxBf16});
  without(IsaLevel::kAmx, {kAvxVnni, kAvx512Vnni, kAvx512Bf16, kAvx512Fp16, kAmxFp16});
  return targets;
}

// compute="int8" with codes of every width, every correction and every type of scale.
void AddRowInt8(bool few, std::vector<ir::KernelSpec>& specs) {
  for (const char* const scheme :
       {"int8", "int8_g32_bf16", "int8_g5_asym_f32", "int8_g16_min_bf16", "int4_g32", "int4_asym_e8m0",
        "int4_g128_asym_bf16", "int4_g32_min", "int8_g50_asym", "int2_g8", "int2_g12_asym", "int2_g32_e4m3"}) {
    for (const DType x : {DType::kFloat16, DType::kFloat32, DType::kBFloat16}) {
      if (few && x != DType::kFloat16) continue;
      ir::KernelSpec spec = codegen::SchemeSpec(ir::Contraction::kRowInt8, scheme, 42, 67);
      spec.x = spec.y = x;
      specs.push_back(spec);
      spec.order = ir::InputOrder::kSorted;
      specs.push_back(spec);
    }
  }
}

// Quantized weights with float inputs: every way to decode, every header and every type of x.
void AddWeightOnly(bool few, std::vector<ir::KernelSpec>& specs) {
  for (const char* const scheme :
       {"int8", "int8_g5_asym_f32", "int8_g16_min_bf16", "int4_g32", "int4_g128_asym_bf16", "int4_g7_asym",
        "int4_g32_min", "int2_g12_asym", "nf4_g64", "fp8_e4m3_g16_e8m0", "fp8_e5m2_g12", "mxfp4", "nvfp4"}) {
    for (const DType x : {DType::kFloat16, DType::kFloat32, DType::kBFloat16}) {
      if (few && x != DType::kFloat16) continue;
      ir::KernelSpec spec = codegen::SchemeSpec(ir::Contraction::kWeightOnly, scheme, 42, 67);
      spec.x = spec.y = x;
      specs.push_back(spec);
      spec.order = ir::InputOrder::kSorted;
      specs.push_back(spec);
    }
  }
}

// Every type with one activation, and every activation with one type; the emitters that take long get the first of
// each kind alone.
std::vector<ir::KernelSpec> Specs(bool few) {
  std::vector<ir::KernelSpec> specs;
  const auto add_forms = [&](ir::KernelSpec spec) {
    specs.push_back(spec);
    spec.access = ir::Access::kIndirect;
    spec.taps = 9;
    if (!spec.gated()) spec.bias = ir::BiasKind::kFloat32;
    specs.push_back(spec);
    if (spec.gated()) return;
    spec.contraction = ir::Contraction::kDepthwise;
    spec.k = 1;
    specs.push_back(spec);
  };
  ir::KernelSpec base;
  base.n = 42;
  base.k = 67;
  constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (const DType x : kFloats) {
    for (const DType w : kFloats) {
      ir::KernelSpec spec = base;
      spec.x = spec.y = x;
      spec.w = w;
      if (!few || x == w) add_forms(spec);
    }
  }
  for (const ir::Activation activation : ir::AllActivations()) {
    ir::KernelSpec spec = base;
    spec.activation = activation;
    if (!few || activation == ir::Activation::kSwiglu) add_forms(spec);
    for (const DType x : {DType::kInt8, DType::kUInt8}) {
      ir::KernelSpec integer = spec;
      integer.contraction = ir::Contraction::kInteger;
      integer.x = x;
      integer.w = DType::kInt8;
      integer.interleave = 4;
      integer.requantize = x == DType::kUInt8;
      if (integer.requantize) integer.y = x;
      if (!few || activation == ir::Activation::kRelu) specs.push_back(integer);
    }
  }
  AddRowInt8(few, specs);
  AddWeightOnly(few, specs);
  return specs;
}

std::vector<ir::KernelSpec> EveryVariant(const std::vector<ir::KernelSpec>& specs, const Target& target) {
  std::vector<ir::KernelSpec> all;
  for (const ir::KernelSpec& spec : specs) {
    for (const ir::KernelSpec& variant : codegen::Variants(spec, target)) all.push_back(variant);
  }
  return all;
}

TEST(DecodeTest, NoInstructionIsAboveTheTargetOrTheKernelsLevel) {
  std::map<std::vector<uint8_t>, Needs> seen;
  for (const Emitter* emitter : codegen::Emitters()) {
    if (!emitter->needs_executable_memory()) continue;
    int64_t kernels = 0, instructions = 0;
    const std::vector<ir::KernelSpec> specs = Specs(emitter->name() == "llvm");
    for (const Target& target : Targets()) {
      for (const ir::KernelSpec& spec : EveryVariant(specs, target)) {
        const auto emitted = emitter->Emit(spec, target);
        const auto* const kernel = std::get_if<EmittedKernel>(&emitted);
        if (kernel == nullptr) continue;
        const auto [at, is_new] = seen.try_emplace(kernel->code);
        Needs& needs = at->second;
        if (is_new) needs = Read(*kernel);
        ASSERT_EQ(Beyond(target, needs), "")
            << emitter->name() << " for " << target.ToString() << ": " << spec.ToString();
        // A compiler need not use all that it may.
        const IsaLevel lowest = emitter->name() == "llvm" ? std::min(LowestLevel(needs), kernel->isa) : kernel->isa;
        ASSERT_EQ(Name(LowestLevel(needs)), Name(lowest))
            << emitter->name() << " for " << target.ToString() << ": " << spec.ToString();
        ++kernels;
        instructions += needs.instructions;
      }
    }
    EXPECT_GT(instructions, 300 * kernels);
    EXPECT_GT(kernels, 0) << emitter->name();
    std::printf("%s: %ld kernels, %ld different ones so far\n", std::string(emitter->name()).c_str(), kernels,
                seen.size());
  }
}

}  // namespace
}  // namespace clikart::analysis
