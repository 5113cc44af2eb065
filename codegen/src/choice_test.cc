// What recorded CPUs are served with: from CPUID to the product, the emitter and the level of the kernel.
#include <string>
#include <variant>

#include "clikart/codegen/emitter.h"
#include "clikart/codegen/product.h"
#include "gtest/gtest.h"
#include "quant_testing.h"
#include "recorded_cpus.h"

namespace clikart::codegen {
namespace {

using ir::DType;

struct Choice {
  std::string emitter;
  IsaLevel isa;
  ir::Product product;
  friend bool operator==(const Choice&, const Choice&) = default;
  friend void PrintTo(const Choice& choice, std::ostream* out) {
    *out << choice.emitter << " at " << Name(choice.isa) << " by " << ir::Name(choice.product);
  }
};

// As the runtime goes about it: the spec for this CPU, then the first emitter that takes it.
Choice ChoiceFor(const CpuidRecord& cpuid, ir::KernelSpec spec) {
  const Target target = Detect(cpuid, kWidestIsa);
  spec.interleave = InterleaveFor(spec, target, MathMode::kNative);
  spec.product = ProductFor(spec, target, MathMode::kNative);
  for (const Emitter* emitter : Emitters()) {
    auto emitted = emitter->Emit(spec, target);
    if (const auto* kernel = std::get_if<EmittedKernel>(&emitted)) return {kernel->emitter, kernel->isa, spec.product};
  }
  return {"none", IsaLevel::kBaseline, spec.product};
}

ir::KernelSpec Spec(DType dtype) {
  ir::KernelSpec spec;
  spec.n = 48;
  spec.k = 64;
  spec.x = spec.w = spec.y = dtype;
  if (dtype == DType::kInt8) {
    spec.contraction = ir::Contraction::kInteger;
    spec.y = DType::kFloat32;
  }
  return spec;
}

CpuidRecord Without(CpuidRecord cpuid, uint64_t xcr0) {
  cpuid.xcr0 &= ~xcr0;
  return cpuid;
}

TEST(Choice, FollowsTheFeaturesOfRecordedCpus) {
  using enum IsaLevel;
  using enum ir::Product;
  const CpuidRecord no_zmm = Without(SapphireRapids(), 0b1110'0000), no_tiles = Without(SapphireRapids(), 0b11 << 17);
  struct Row {
    const char* cpu;
    CpuidRecord cpuid;
    Choice f32, f16, bf16, int8;
  };
  const Row rows[] = {
      {"Haswell",
       Haswell(),
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma}},
      {"Zen 3", Zen3(), {"xbyak", kAvx2, kFma}, {"xbyak", kAvx2, kFma}, {"xbyak", kAvx2, kFma}, {"xbyak", kAvx2, kFma}},
      {"Alder Lake",
       AlderLake(),
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvxVnni, kFma}},
      {"Skylake-X",
       SkylakeX(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma}},
      {"Ice Lake server",
       IceLakeServer(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512Vnni, kFma}},
      {"Zen 4",
       Zen4(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512Bf16, kDotBf16},
       {"xbyak", kAvx512Vnni, kFma}},
      {"Zen 5",
       Zen5(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512Bf16, kDotBf16},
       {"xbyak", kAvx512Vnni, kFma}},
      {"Sapphire Rapids",
       SapphireRapids(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAmx, kTileBf16},
       {"xbyak", kAmx, kFma}},
      {"Granite Rapids",
       GraniteRapids(),
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAmx, kTileF16},
       {"xbyak", kAmx, kTileBf16},
       {"xbyak", kAmx, kFma}},
      {"Sapphire Rapids, no zmm state",
       no_zmm,
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvx2, kFma},
       {"xbyak", kAvxVnni, kFma}},
      {"Sapphire Rapids, no tile state",
       no_tiles,
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512, kFma},
       {"xbyak", kAvx512Bf16, kDotBf16},
       {"xbyak", kAvx512Vnni, kFma}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(ChoiceFor(row.cpuid, Spec(DType::kFloat32)), row.f32) << row.cpu;
    EXPECT_EQ(ChoiceFor(row.cpuid, Spec(DType::kFloat16)), row.f16) << row.cpu;
    EXPECT_EQ(ChoiceFor(row.cpuid, Spec(DType::kBFloat16)), row.bf16) << row.cpu;
    EXPECT_EQ(ChoiceFor(row.cpuid, Spec(DType::kInt8)), row.int8) << row.cpu;
  }
}

// compute="int8" in groups that tiles take, and in shorter ones.
TEST(Choice, RowsOfCodesFollowTheFeaturesOfRecordedCpus) {
  using enum IsaLevel;
  using enum ir::Product;
  struct Row {
    CpuidRecord cpuid;
    Choice long_groups, short_groups;
  };
  const Row rows[] = {
      {Haswell(), {"xbyak", kAvx2, kFma}, {"xbyak", kAvx2, kFma}},
      {AlderLake(), {"xbyak", kAvxVnni, kFma}, {"xbyak", kAvxVnni, kFma}},
      {IceLakeServer(), {"xbyak", kAvx512Vnni, kFma}, {"xbyak", kAvx512Vnni, kFma}},
      {SapphireRapids(), {"xbyak", kAmx, kTileInt8}, {"xbyak", kAvx512Vnni, kFma}},
      {GraniteRapids(), {"xbyak", kAmx, kTileInt8}, {"xbyak", kAvx512Vnni, kFma}},
      {Without(SapphireRapids(), 0b11 << 17), {"xbyak", kAvx512Vnni, kFma}, {"xbyak", kAvx512Vnni, kFma}},
  };
  const auto spec = [](const char* scheme) { return SchemeSpec(ir::Contraction::kRowInt8, scheme, 48, 64); };
  for (const Row& row : rows) {
    EXPECT_EQ(ChoiceFor(row.cpuid, spec("int4_g32")), row.long_groups);
    EXPECT_EQ(ChoiceFor(row.cpuid, spec("int4_g16")), row.short_groups);
  }
}

// Below AVX2 the fast emitter refuses by name, and another one serves the same spec.
TEST(Choice, OldCpusAreServedToo) {
  for (const CpuidRecord& cpuid : {CpuidRecord{}, Nehalem()}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
      const Choice choice = ChoiceFor(cpuid, Spec(dtype));
      EXPECT_NE(choice.emitter, "xbyak");
      EXPECT_NE(choice.emitter, "none");
      EXPECT_LE(choice.isa, IsaLevel::kSse4);
      EXPECT_EQ(choice.product, ir::Product::kFma);
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
