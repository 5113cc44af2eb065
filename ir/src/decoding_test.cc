#include "clikart/ir/decoding.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace clikart::ir {
namespace {

// Handlers of exit run after statics that were made later are gone; the kernel cache's writes signatures there.
TEST(DecodingDeathTest, FingerprintsOutliveMain) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto every_fingerprint = [] {
    uint64_t sum = 0;
    for (const char* const scheme : {"int8", "int8_asym_e8m0", "int4_g32", "int2", "nf4", "fp8_e5m2", "nvfp4"}) {
      sum += DecodingFingerprint(*QuantScheme::Parse(scheme));
    }
    return sum;
  };
  static uint64_t in_main = 0;
  static uint64_t (*const fingerprints)() = every_fingerprint;
  EXPECT_EXIT(
      {
        std::atexit([] { std::_Exit(fingerprints() == in_main ? 0 : 1); });
        in_main = fingerprints();
        std::exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Decoding, LevelsThatCountAreRecognized) {
  const auto counts_from = [](const char* scheme) { return CountsFrom(DecodingOf(*QuantScheme::Parse(scheme))); };
  EXPECT_EQ(counts_from("int4"), 8);
  EXPECT_EQ(counts_from("int4_g32_asym"), 0);
  EXPECT_EQ(counts_from("int2"), 2);
  EXPECT_EQ(counts_from("int2_g32_min"), 0);
  for (const char* const scheme : {"nf4", "fp4", "mxfp4", "int8", "fp8_e4m3"}) {
    EXPECT_EQ(counts_from(scheme), std::nullopt) << scheme;
  }
}

}  // namespace
}  // namespace clikart::ir
