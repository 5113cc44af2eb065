#include "clikart/codegen/target.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recorded_cpus.h"

namespace clikart::codegen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr FeatureSet kAvx2Set = {Feature::kSse42, Feature::kAvx2};
constexpr FeatureSet kAvx512Set = {Feature::kSse42, Feature::kAvx2, Feature::kAvx512};

FeatureSet With(FeatureSet set, std::initializer_list<Feature> more) {
  for (const Feature feature : more) set.Add(feature);
  return set;
}

struct Expectation {
  const char* cpu;
  CpuidRecord record;
  FeatureSet features;
  IsaLevel level;
};

std::vector<Expectation> Expectations() {
  const FeatureSet vnni = With(kAvx512Set, {Feature::kAvx512Vnni});
  const FeatureSet bf16 = With(vnni, {Feature::kAvx512Bf16});
  const FeatureSet fp16 = With(bf16, {Feature::kAvxVnni, Feature::kAvx512Fp16});
  const FeatureSet amx = With(fp16, {Feature::kAmxInt8, Feature::kAmxBf16});
  return {
      {"Nehalem", Nehalem(), {Feature::kSse42}, IsaLevel::kSse4},
      {"Haswell", Haswell(), kAvx2Set, IsaLevel::kAvx2},
      {"Zen 3", Zen3(), kAvx2Set, IsaLevel::kAvx2},
      {"Zen 4", Zen4(), bf16, IsaLevel::kAvx512Bf16},
      {"Zen 5", Zen5(), With(bf16, {Feature::kAvxVnni}), IsaLevel::kAvx512Bf16},
      {"Skylake-X", SkylakeX(), kAvx512Set, IsaLevel::kAvx512},
      {"Ice Lake server", IceLakeServer(), vnni, IsaLevel::kAvx512Vnni},
      {"Alder Lake", AlderLake(), With(kAvx2Set, {Feature::kAvxVnni}), IsaLevel::kAvxVnni},
      {"Sapphire Rapids", SapphireRapids(), amx, IsaLevel::kAmx},
      {"Granite Rapids", GraniteRapids(), With(amx, {Feature::kAmxFp16}), IsaLevel::kAmx},
  };
}

TEST(Detect, FindsWhatRecordedCpusHave) {
  for (const auto& [cpu, record, features, level] : Expectations()) {
    const Target target = Detect(record, kWidestIsa);
    EXPECT_EQ(target.features, features) << cpu << ": " << target.ToString();
    EXPECT_EQ(target.level(), level) << cpu;
  }
}

TEST(Detect, NeverGoesAboveTheCap) {
  for (const auto& [cpu, record, features, level] : Expectations()) {
    for (const IsaLevel cap : AllIsaLevels()) {
      const Target target = Detect(record, cap);
      EXPECT_LE(target.level(), cap) << cpu;
      EXPECT_TRUE(TargetOf(cap).Includes(target)) << cpu << ": " << target.ToString();
      EXPECT_TRUE(features.Includes(target.features)) << cpu;
      if (cap >= level) {
        EXPECT_EQ(target.features, features) << cpu;
      }
    }
  }
}

TEST(Detect, WhatTheSystemDoesNotKeepStaysOff) {
  const FeatureSet avx_vnni = With(kAvx2Set, {Feature::kAvxVnni});
  // Without AVX-512 state nothing of AVX-512 or AMX, whatever CPUID says; each of its three bits counts.
  for (const uint64_t missing : {1u << 5, 1u << 6, 1u << 7}) {
    CpuidRecord cpuid = GraniteRapids();
    cpuid.xcr0 &= ~missing;
    EXPECT_EQ(Detect(cpuid, kWidestIsa).features, avx_vnni) << missing;
  }
  // Without the upper halves of ymm nothing beyond SSE.
  for (const uint64_t missing : {1u << 1, 1u << 2}) {
    CpuidRecord cpuid = GraniteRapids();
    cpuid.xcr0 &= ~missing;
    EXPECT_EQ(Detect(cpuid, kWidestIsa).features, (FeatureSet{Feature::kSse42})) << missing;
  }
  CpuidRecord no_osxsave = GraniteRapids();
  no_osxsave.leaf1_ecx &= ~(1u << 27);
  no_osxsave.xcr0 = 0;
  EXPECT_EQ(Detect(no_osxsave, kWidestIsa).features, (FeatureSet{Feature::kSse42}));
}

TEST(Detect, Avx512NeedsItsFourParts) {
  for (const int bit : {16, 17, 30, 31}) {  // F DQ BW VL
    CpuidRecord cpuid = IceLakeServer();
    cpuid.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(Detect(cpuid, kWidestIsa).features, kAvx2Set) << "leaf 7 EBX bit " << bit;
  }
}

TEST(Detect, Avx2NeedsEveryPart) {
  for (const int bit : {12, 27, 28, 29}) {  // FMA OSXSAVE AVX F16C
    CpuidRecord cpuid = Haswell();
    cpuid.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(Detect(cpuid, kWidestIsa).level(), IsaLevel::kSse4) << "leaf 1 ECX bit " << bit;
  }
  for (const int bit : {3, 5, 8}) {  // BMI1 AVX2 BMI2
    CpuidRecord cpuid = Haswell();
    cpuid.leaf7_ebx &= ~(1u << bit);
    EXPECT_EQ(Detect(cpuid, kWidestIsa).level(), IsaLevel::kSse4) << "leaf 7 EBX bit " << bit;
  }
}

// A virtual machine may advertise AMX and keep its state from the guest; a palette may be another one.
TEST(Detect, DoubtfulTilesStayOff) {
  const FeatureSet without = Detect(GraniteRapids(), IsaLevel::kAvx512Fp16).features;
  const auto expect_off = [&](const char* what, auto change) {
    CpuidRecord cpuid = GraniteRapids();
    change(cpuid);
    EXPECT_EQ(Detect(cpuid, kWidestIsa).features, without) << what;
  };
  expect_off("no XCR0 state", [](CpuidRecord& c) { c.xcr0 &= ~(uint64_t{3} << 17); });
  expect_off("configuration state alone", [](CpuidRecord& c) { c.xcr0 &= ~(uint64_t{1} << 18); });
  expect_off("data state alone", [](CpuidRecord& c) { c.xcr0 &= ~(uint64_t{1} << 17); });
  expect_off("no AMX-TILE", [](CpuidRecord& c) { c.leaf7_edx &= ~(1u << 24); });
  expect_off("no palette", [](CpuidRecord& c) { c.leaf1d_eax = 0; });
  expect_off("tiles of 512 bytes", [](CpuidRecord& c) { c.palette_eax = 0x02002000; });
  expect_off("four tiles", [](CpuidRecord& c) { c.palette_ebx = 0x00040040; });
  expect_off("rows of 32 bytes", [](CpuidRecord& c) { c.palette_ebx = 0x00080020; });
  expect_off("eight rows", [](CpuidRecord& c) { c.palette_ecx = 8; });
  expect_off("no leaf 1e", [](CpuidRecord& c) { c.leaf1e_ebx = 0; });
  expect_off("permission refused", [](CpuidRecord& c) { c.tile_permission = false; });
  expect_off("permission not asked", [](CpuidRecord& c) { c.tile_permission.reset(); });
  CpuidRecord no_avx512 = GraniteRapids();
  no_avx512.leaf7_ebx &= ~(1u << 16);
  EXPECT_EQ(Detect(no_avx512, kWidestIsa).level(), IsaLevel::kAvxVnni);
}

TEST(Detect, TakesAmxPartByPart) {
  CpuidRecord cpuid = SapphireRapids();
  cpuid.leaf7_edx &= ~(1u << 25);
  const Target target = Detect(cpuid, kWidestIsa);
  EXPECT_FALSE(target.Has(Feature::kAmxInt8));
  EXPECT_TRUE(target.Has(Feature::kAmxBf16));
  EXPECT_EQ(target.level(), IsaLevel::kAmx);
}

TEST(CpuidRecord, AsksForTilesOnlyWhereTheyCanBeUsed) {
  const CpuidRecord capped = CpuidRecord::Host(IsaLevel::kAvx512Fp16);
  EXPECT_FALSE(capped.tile_permission.has_value());
  const CpuidRecord host = CpuidRecord::Host();
  CpuidRecord granted = host;
  granted.tile_permission = true;
  EXPECT_EQ(host.tile_permission.has_value(), Detect(granted, kWidestIsa).level() == IsaLevel::kAmx);
  if (!host.tile_permission.value_or(false)) return;
  uint64_t permitted = 0;
  constexpr long kGetPermission = 0x1022;
  ASSERT_EQ(syscall(SYS_arch_prctl, kGetPermission, &permitted), 0);
  EXPECT_NE(permitted & (uint64_t{1} << 18), 0u);
}

TEST(Target, NamesParseBack) {
  for (const IsaLevel level : AllIsaLevels()) {
    const auto parsed = ParseIsaLevel(Name(level));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, level);
    EXPECT_EQ(TargetOf(level).level(), level);
  }
  EXPECT_EQ(AllIsaLevels().front(), IsaLevel::kBaseline);
  EXPECT_EQ(AllIsaLevels().back(), kWidestIsa);
  const auto bad = ParseIsaLevel("avx1024");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("avx1024"));
  EXPECT_THAT(bad.status().message(),
              HasSubstr("baseline, sse4, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, avx512_fp16, amx"));
}

TEST(Target, SaysWhatItHas) {
  EXPECT_EQ(Target{}.ToString(), "baseline");
  EXPECT_EQ(Detect(Zen4(), kWidestIsa).ToString(), "avx512_bf16: sse42 avx2 avx512 avx512_vnni avx512_bf16");
}

TEST(Target, IsReadAsPeopleWriteIt) {
  for (const IsaLevel level : AllIsaLevels()) {
    EXPECT_EQ(*ParseTarget(Name(level)), TargetOf(level));
    EXPECT_EQ(*ParseTarget(TargetOf(level).ToString()), TargetOf(level));
  }
  for (const Expectation& each : Expectations()) {
    const Target target{.features = each.features};
    EXPECT_EQ(*ParseTarget(target.ToString()), target) << each.cpu;
  }
  EXPECT_EQ(ParseTarget("avx2, sse42")->features, kAvx2Set);
  EXPECT_EQ(ParseTarget("sse42 avx2 avx512")->features, kAvx512Set);  // and no AVX-VNNI, which the level would add
  const auto complaint = [](std::string_view text) { return std::string(ParseTarget(text).status().message()); };
  EXPECT_THAT(complaint("znver5"), AllOf(HasSubstr("\"znver5\""), HasSubstr("avx512_vnni"), HasSubstr("amx_bf16")));
  EXPECT_THAT(complaint("sse42 avx3"), HasSubstr("\"avx3\""));
  EXPECT_THAT(complaint("sse42,avx512"), HasSubstr("avx512 stands on avx2"));
  EXPECT_THAT(complaint("amx: sse42 avx2"), AllOf(HasSubstr("level avx2"), HasSubstr("\"amx\"")));
  EXPECT_THAT(complaint(""), HasSubstr("is no ISA level"));
  EXPECT_THAT(complaint("avx2:"), HasSubstr("is no ISA level"));
}

TEST(Describe, ShowsTheWordsTheStateAndTheChoice) {
  CpuidRecord cpuid = SapphireRapids();
  cpuid.tile_permission = false;
  const std::string text = Describe(cpuid, Detect(cpuid, IsaLevel::kAvx512Bf16));
  EXPECT_THAT(text, AllOf(HasSubstr("XCR0: 600e7, the system keeps ymm zmm tiles; permission for tile data refused"),
                          HasSubstr("avx512_bf16: yes"), HasSubstr("avx512_fp16: no, above the highest level allowed"),
                          HasSubstr("amx_bf16: no, lacks permission for tile data"),
                          HasSubstr("amx_fp16: no, lacks amx_fp16"), HasSubstr("palettes 1"),
                          HasSubstr("target: avx512_bf16: sse42 avx2 avx_vnni avx512 avx512_vnni avx512_bf16\n")));
  EXPECT_THAT(Describe(Haswell(), Detect(Haswell(), kWidestIsa)),
              AllOf(HasSubstr("keeps ymm no zmm no tiles; permission for tile data not asked"),
                    HasSubstr("avx512: no, lacks avx512f"), Not(HasSubstr("avx512: yes"))));
}

}  // namespace
}  // namespace clikart::codegen
