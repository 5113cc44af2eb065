#include "quantize_scales.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace clikart {
namespace {

using ir::ScaleType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ScaleType kTypes[] = {ScaleType::kFloat32, ScaleType::kFloat16, ScaleType::kBFloat16, ScaleType::kE8m0,
                                ScaleType::kE4m3};

double LeastScale(const ScaleFormat& format, double wanted) { return format.LeastScale<2>(Splat<2>(wanted))[1]; }
double GreatestMinimum(const ScaleFormat& format, double wanted) {
  return format.GreatestMinimum<2>(Splat<2>(wanted))[1];
}

// Neighbouring bits from zero to the greatest: all of them, or of f32 those around each power of two.
std::vector<uint32_t> BitsToTry(const ScaleFormat& format) {
  const uint32_t last = format.BitsOf(format.greatest);
  std::vector<uint32_t> all;
  if (format.type != ScaleType::kFloat32) {
    for (uint32_t bits = 0; bits <= last; ++bits) all.push_back(bits);
    return all;
  }
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t i = 0; i < 8; ++i) {
      if (exponent > 0) all.push_back((exponent << 23) - 4 + i);
      all.push_back((exponent << 23) + 0x2aaaa0 + i);
    }
  }
  return all;
}

double Decoded(const ScaleFormat& format, uint32_t bits) {
  // e8m0 has no zero: its first code is 2^-127, which is not in use.
  if (format.type == ScaleType::kE8m0 && bits == 0) return 0;
  return ir::DecodeScale(format.type, bits);
}

TEST(ScaleFormat, EndsAreNumbersOfTheType) {
  for (const ScaleType type : kTypes) {
    const ScaleFormat format(type);
    EXPECT_EQ(ir::DecodeScale(type, format.BitsOf(format.least)), format.least);
    EXPECT_EQ(ir::DecodeScale(type, format.BitsOf(format.greatest)), format.greatest);
    EXPECT_FALSE(ir::DecodeScale(type, format.BitsOf(format.greatest) + 1) > format.greatest &&
                 std::isfinite(ir::DecodeScale(type, format.BitsOf(format.greatest) + 1)));
    EXPECT_GE(format.least, 0x1p-126);
  }
}

TEST(ScaleFormat, BitsDecodeToTheirNumber) {
  for (const ScaleType type : kTypes) {
    const ScaleFormat format(type);
    for (const uint32_t bits : BitsToTry(format)) ASSERT_EQ(format.BitsOf(Decoded(format, bits)), bits);
  }
  EXPECT_EQ(ScaleFormat(ScaleType::kFloat32).BitsOf(-1), 0xbf800000);
  EXPECT_EQ(ScaleFormat(ScaleType::kFloat16).BitsOf(-0x1p-24), 0x8001u);
  EXPECT_EQ(ScaleFormat(ScaleType::kBFloat16).BitsOf(-2), 0xc000u);
}

TEST(ScaleFormat, LeastScaleIsTheFirstThatCovers) {
  for (const ScaleType type : kTypes) {
    const ScaleFormat format(type);
    for (const uint32_t bits : BitsToTry(format)) {
      const double value = Decoded(format, bits);
      if (value >= format.greatest) continue;
      const double next = std::max(Decoded(format, bits + 1), format.least);
      ASSERT_EQ(LeastScale(format, value), std::max(value, format.least));
      ASSERT_EQ(LeastScale(format, std::nextafter(value, kInfinity)), next);
      ASSERT_EQ(LeastScale(format, (value + next) / 2), next);
      ASSERT_EQ(LeastScale(format, std::nextafter(next, 0)), next);
    }
    EXPECT_EQ(LeastScale(format, 0), format.least);
    for (const double beyond : {std::nextafter(format.greatest, kInfinity), 1e300, kInfinity, std::nan("")}) {
      EXPECT_GT(LeastScale(format, beyond), format.greatest) << beyond;
    }
  }
}

TEST(ScaleFormat, GreatestMinimumIsTheLastThatIsNotAbove) {
  for (const ScaleType type : {ScaleType::kFloat32, ScaleType::kFloat16, ScaleType::kBFloat16}) {
    const ScaleFormat format(type);
    for (const uint32_t bits : BitsToTry(format)) {
      const double value = Decoded(format, bits);
      if (value >= format.greatest) continue;
      const double next = Decoded(format, bits + 1);
      ASSERT_EQ(GreatestMinimum(format, value), value);
      ASSERT_EQ(GreatestMinimum(format, std::nextafter(next, 0)), value);
      ASSERT_EQ(GreatestMinimum(format, (value + next) / 2), value);
      ASSERT_EQ(GreatestMinimum(format, -value), -value);
      ASSERT_EQ(GreatestMinimum(format, -std::nextafter(value, kInfinity)), -next);
      ASSERT_EQ(GreatestMinimum(format, -(value + next) / 2), -next);
    }
    EXPECT_EQ(format.BitsOf(GreatestMinimum(format, -0.0)), 0u);
    EXPECT_EQ(GreatestMinimum(format, 1e39), format.greatest);
    EXPECT_LT(GreatestMinimum(format, -1e39), -format.greatest);
  }
}

}  // namespace
}  // namespace clikart
