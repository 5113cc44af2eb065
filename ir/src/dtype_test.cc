#include "clikart/ir/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

namespace clikart::ir {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
bool IsHalfNan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }
bool IsBFloat16Nan(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

TEST(DTypeTest, NamesParseBack) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kUInt8, DType::kInt32}) {
    EXPECT_EQ(ParseDType(Name(dtype)), dtype);
    EXPECT_EQ(ParseDType(ShortName(dtype)), dtype);
  }
  EXPECT_EQ(Name(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(ParseDType("float64"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
}

TEST(DTypeTest, EveryHalfRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float wide = HalfToFloat(bits);
    if (IsHalfNan(bits)) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      EXPECT_TRUE(IsHalfNan(FloatToHalf(wide))) << i;
    } else {
      EXPECT_EQ(FloatToHalf(wide), bits) << i;
      // The value itself: fraction times a power of two.
      const int exponent = static_cast<int>(bits >> 10 & 31);
      const double fraction = (bits & 1023) + (exponent > 0 ? 1024 : 0);
      const double value = exponent == 31 ? INFINITY : std::ldexp(fraction, std::max(exponent, 1) - 25);
      EXPECT_EQ(wide, bits & 0x8000 ? -value : value) << i;
    }
  }
}

TEST(DTypeTest, EveryBFloat16RoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float wide = BFloat16ToFloat(bits);
    if (IsBFloat16Nan(bits)) {
      EXPECT_TRUE(std::isnan(wide)) << i;
      EXPECT_TRUE(IsBFloat16Nan(FloatToBFloat16(wide))) << i;
    } else {
      EXPECT_EQ(FloatToBFloat16(wide), bits) << i;
    }
  }
}

// Between neighbours a < b: the middle goes to the even one, everything else to the nearer. Infinity
// takes the place of the number after the largest.
void CheckBetween(uint16_t low, uint16_t high, double a, double b, uint16_t (*narrow)(float),
                  float (*widen)(uint16_t)) {
  const double middle = (a + b) / 2;
  const auto tie = static_cast<float>(middle);
  ASSERT_EQ(static_cast<double>(tie), middle);  // representable with the bits that float has more
  EXPECT_EQ(narrow(tie), low % 2 == 0 ? low : high) << low;
  EXPECT_EQ(narrow(-tie), (low % 2 == 0 ? low : high) | 0x8000) << low;
  EXPECT_EQ(narrow(std::nextafter(tie, 0.0f)), low) << low;
  EXPECT_EQ(narrow(std::nextafter(tie, INFINITY)), high) << low;
  EXPECT_EQ(narrow(std::nextafter(widen(low), INFINITY)), low) << low;
}

TEST(DTypeTest, HalvesRoundToNearestEvenEverywhere) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double b = bits == 0x7bff ? 65536 : HalfToFloat(bits + 1);
    CheckBetween(bits, bits + 1, HalfToFloat(bits), b, FloatToHalf, HalfToFloat);
  }
}

TEST(DTypeTest, BFloat16RoundsToNearestEvenEverywhere) {
  for (uint16_t bits = 0; bits < 0x7f80; ++bits) {
    const double b = bits == 0x7f7f ? 0x1p128 : BFloat16ToFloat(bits + 1);
    CheckBetween(bits, bits + 1, BFloat16ToFloat(bits), b, FloatToBFloat16, BFloat16ToFloat);
  }
}

TEST(DTypeTest, C010_TiesOverflowAndNanPayloads) {
  EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(FromBits(0x3e89ccd5))), 0.26953125f);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x3f808000)), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x3f808001)), 0x3f81);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x7f7fffff)), 0x7f80);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x00000001)), 0x0000);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x80000000)), 0x8000);
  for (uint32_t nan : {0x7f800001u, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f808000u}) {
    EXPECT_TRUE(IsBFloat16Nan(FloatToBFloat16(FromBits(nan)))) << nan;
    EXPECT_TRUE(IsHalfNan(FloatToHalf(FromBits(nan)))) << nan;
    EXPECT_EQ(FloatToBFloat16(FromBits(nan)) >> 15, nan >> 31);
    EXPECT_EQ(FloatToHalf(FromBits(nan)) >> 15, nan >> 31);
  }
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.8p-24f), 0x0002);
}

}  // namespace
}  // namespace clikart::ir
