#include "quantize_codes.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using ir::QuantScheme;
using testing::Value;

QuantScheme Scheme(const std::string& text) { return Value(QuantScheme::Parse(text)); }

// What a rounding makes of a weight under a grid.
template <typename Rounding>
Level Nearest(const Rounding& rounding, double weight, double scale = 1, double zero = 0) {
  std::array<Doubles<2>, 2 * 255> scratch;
  const CodeGrid<2> grid = {Splat<2>(scale), Splat<2>(zero), {}};
  const typename Rounding::template At<2, false> nearest(rounding, grid, scratch.data());
  return {nearest.Value(Splat<2>(weight))[1], static_cast<uint8_t>(nearest.Code(Splat<2>(weight))[1])};
}

Level Nearest(const AnyRounding& rounding, double weight, double scale = 1) {
  return std::visit([&](const auto& known) { return Nearest(known, weight, scale); }, rounding);
}

// The codes of one bit more than nf4 has, a sign and powers of two: a table, but no minifloat.
std::vector<Level> PowersOfTwo() {
  std::vector<Level> levels;
  for (int i = 0; i < 7; ++i) levels.push_back({-std::ldexp(1, -i), static_cast<uint8_t>(15 - i)});
  levels.push_back({0, 0});
  for (int i = 6; i >= 0; --i) levels.push_back({std::ldexp(1, -i), static_cast<uint8_t>(7 - i)});
  return levels;
}

TEST(RoundingOf, TellsMinifloatsFromTables) {
  for (const char* text : {"fp4", "fp8_e4m3", "fp8_e5m2"}) {
    EXPECT_TRUE(std::holds_alternative<MinifloatRounding>(RoundingOf(Scheme(text)))) << text;
  }
  EXPECT_TRUE(std::holds_alternative<TableRounding>(RoundingOf(Scheme("nf4"))));
  EXPECT_TRUE(std::holds_alternative<IntegerRounding>(RoundingOf(Scheme("int4"))));
  EXPECT_FALSE(MinifloatRounding::Of(PowersOfTwo(), 4).has_value());
  const MinifloatRounding e4m3 = std::get<MinifloatRounding>(RoundingOf(Scheme("fp8_e4m3")));
  EXPECT_EQ(e4m3.mantissa_bits, 3);
  EXPECT_EQ(e4m3.least_unit, 0x1p-9);
  EXPECT_EQ(e4m3.greatest, 448);

  std::vector<Level> odd = LevelsOf(Scheme("fp4"));
  odd.back().value = 5;  // no number of the type
  EXPECT_FALSE(MinifloatRounding::Of(odd, 4).has_value());
  odd.back() = odd[odd.size() - 2];  // a code twice
  EXPECT_FALSE(MinifloatRounding::Of(odd, 4).has_value());
  odd.pop_back();  // more numbers below zero than above
  EXPECT_FALSE(MinifloatRounding::Of(odd, 4).has_value());
}

TEST(RoundingOf, NearestIsNoFartherThanAnyCode) {
  for (const char* text : {"nf4", "fp4", "fp8_e4m3", "fp8_e5m2"}) {
    const QuantScheme scheme = Scheme(text);
    const AnyRounding rounding = RoundingOf(scheme);
    std::mt19937 generator(1);
    std::normal_distribution<double> normal(0, LevelsOf(scheme).back().value / 3);
    for (int i = 0; i < 2000; ++i) {
      const double value = static_cast<float>(i % 2 == 0 ? normal(generator) : normal(generator) * 1e-4);
      const Level found = Nearest(rounding, value);
      ASSERT_EQ(ir::DecodeCode(scheme, found.code), found.value) << text << " " << value;
      for (int code = 0; code < 1 << scheme.bits; ++code) {
        const double other = ir::DecodeCode(scheme, static_cast<uint8_t>(code));
        if (std::isfinite(other)) {
          ASSERT_LE(std::abs(value - found.value), std::abs(value - other)) << text;
        }
      }
    }
  }
}

// The two ways agree on every number of interest: levels, middles and their neighbours, under scales that make
// quotients inexact.
TEST(TableRounding, IsTheMinifloatsOwnRounding) {
  for (const char* text : {"fp4", "fp8_e4m3", "fp8_e5m2"}) {
    const std::vector<Level> levels = LevelsOf(Scheme(text));
    const AnyRounding minifloat = RoundingOf(Scheme(text));
    const TableRounding table(levels);
    for (const double scale : {1.0, 0x1p-100, static_cast<double>(0.1f), static_cast<double>(1.7e5f)}) {
      for (size_t i = 1; i < levels.size(); ++i) {
        const double middle = (levels[i - 1].value + levels[i].value) / 2;
        for (const double value : {levels[i].value, middle}) {
          const auto weight = static_cast<float>(value * scale);
          for (const float near : {weight, std::nextafter(weight, 1e30f), std::nextafter(weight, -1e30f)}) {
            const Level wanted = Nearest(table, near, scale), found = Nearest(minifloat, near, scale);
            ASSERT_EQ(found.value, wanted.value) << text << " " << near << " / " << scale;
            ASSERT_EQ(found.code, wanted.code) << text << " " << near << " / " << scale;
          }
        }
      }
    }
  }
}

TEST(MinifloatRounding, TiesTakeTheEvenCodeAndEndsSaturate) {
  const AnyRounding fp4 = RoundingOf(Scheme("fp4"));  // 0 0.5 1 1.5 2 3 4 6
  constexpr std::array<std::pair<double, double>, 9> kTies = {
      {{0.25, 0}, {0.75, 1}, {1.25, 1}, {1.75, 2}, {2.5, 2}, {3.5, 4}, {5, 4}, {7, 6}, {1e300, 6}}};
  for (const auto& [value, nearest] : kTies) {
    EXPECT_EQ(Nearest(fp4, value).value, nearest);
    EXPECT_EQ(Nearest(fp4, -value).value, -nearest);
  }
  EXPECT_EQ(Nearest(fp4, -0.0).code, 0);
  EXPECT_EQ(Nearest(fp4, -0.1).code, 0);
  EXPECT_EQ(Nearest(fp4, std::nextafter(0.25, 1)).value, 0.5);
  const AnyRounding e4m3 = RoundingOf(Scheme("fp8_e4m3")), e5m2 = RoundingOf(Scheme("fp8_e5m2"));
  EXPECT_EQ(Nearest(e4m3, 1e9).value, 448);
  EXPECT_EQ(Nearest(e4m3, -1e9).code, 0xfe);
  EXPECT_EQ(Nearest(e4m3, 0x1p-10).value, 0);
  EXPECT_EQ(Nearest(e4m3, 1 + 0x1p-4).value, 1);
  EXPECT_EQ(Nearest(e5m2, 1e9).value, 57344);
  EXPECT_EQ(Nearest(e5m2, 1 + 0x3p-3).value, 1.5);
}

TEST(TableRounding, TiesTakeTheEvenCodeAndEndsSaturate) {
  const AnyRounding nf4 = RoundingOf(Scheme("nf4"));
  EXPECT_EQ(Nearest(nf4, -7).value, -1);
  EXPECT_EQ(Nearest(nf4, 7).value, 1);
  EXPECT_EQ(Nearest(nf4, 0).code, 7);
  const std::vector<Level> levels = PowersOfTwo();
  const TableRounding powers(levels);
  for (const double scale : {1.0, static_cast<double>(1e-3f), 3.0}) {
    for (size_t i = 1; i < levels.size(); ++i) {
      const double middle = (levels[i - 1].value + levels[i].value) / 2;
      const double weight = middle * scale;
      const Level& even = levels[i].code % 2 == 0 ? levels[i] : levels[i - 1];
      EXPECT_EQ(Nearest(powers, weight, scale).value, even.value) << middle << " / " << scale;
      EXPECT_EQ(Nearest(powers, weight + std::abs(weight) * 0x1p-30, scale).code, levels[i].code);
      EXPECT_EQ(Nearest(powers, weight - std::abs(weight) * 0x1p-30, scale).code, levels[i - 1].code);
    }
  }
}

TEST(IntegerRounding, TiesTakeTheEvenValueAndEndsSaturate) {
  const IntegerRounding four(Scheme("int4")), eight(Scheme("int8"));
  EXPECT_EQ(Nearest(four, 2.5, 1, 8).code, 10);
  EXPECT_EQ(Nearest(four, -3.5, 1, 8).code, 4);
  EXPECT_EQ(Nearest(four, 9, 1, 8).code, 15);
  EXPECT_EQ(Nearest(four, -1e300, 1, 8).value, -8);
  EXPECT_EQ(static_cast<int8_t>(Nearest(eight, -1e300).code), -128);
  EXPECT_EQ(Nearest(eight, 127.6).value, 127);
  EXPECT_EQ(Nearest(IntegerRounding(Scheme("int8_asym")), -3.0, 1, 3).code, 0);
}

}  // namespace
}  // namespace clikart
