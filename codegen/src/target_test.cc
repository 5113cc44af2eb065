#include "clikart/codegen/target.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

using ::testing::HasSubstr;

CpuidRecord Avx2Machine() {
  CpuidRecord cpuid;
  cpuid.leaf1_ecx = (1u << 12) | (1u << 27) | (1u << 28) | (1u << 29);
  cpuid.leaf7_ebx = 1u << 5;
  cpuid.xcr0 = 0b111;
  return cpuid;
}

TEST(Target, NeedsEveryFeatureAndTheSystemsConsent) {
  EXPECT_EQ(Detect(Avx2Machine(), IsaLevel::kAvx2).isa, IsaLevel::kAvx2);
  for (const int bit : {12, 27, 28, 29}) {
    CpuidRecord cpuid = Avx2Machine();
    cpuid.leaf1_ecx &= ~(1u << bit);
    EXPECT_EQ(Detect(cpuid, IsaLevel::kAvx2).isa, IsaLevel::kBaseline) << "leaf 1 ECX bit " << bit;
  }
  CpuidRecord no_avx2 = Avx2Machine();
  no_avx2.leaf7_ebx = 0;
  EXPECT_EQ(Detect(no_avx2, IsaLevel::kAvx2).isa, IsaLevel::kBaseline);
  for (const uint64_t xcr0 : {0b000, 0b001, 0b010, 0b100}) {
    CpuidRecord cpuid = Avx2Machine();
    cpuid.xcr0 = xcr0;
    EXPECT_EQ(Detect(cpuid, IsaLevel::kAvx2).isa, IsaLevel::kBaseline) << "XCR0 " << xcr0;
  }
}

TEST(Target, StaysBelowTheCap) { EXPECT_EQ(Detect(Avx2Machine(), IsaLevel::kBaseline).isa, IsaLevel::kBaseline); }

TEST(Target, NamesParseBack) {
  for (const IsaLevel level : AllIsaLevels()) {
    const auto parsed = ParseIsaLevel(Name(level));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, level);
  }
  const auto bad = ParseIsaLevel("avx1024");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("avx1024"));
  EXPECT_THAT(bad.status().message(), HasSubstr("baseline, avx2"));
}

}  // namespace
}  // namespace clikart::codegen
