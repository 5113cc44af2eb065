#include "clikart/ir/quant_scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace clikart::ir {
namespace {

using ::testing::HasSubstr;

TEST(QuantSchemeTest, CanonicalTexts) {
  const std::vector<std::pair<QuantScheme, std::string>> cases = {
      {{.bits = 8}, "int8"},
      {{.bits = 4, .symmetric = false, .group_size = 128}, "int4_g128_asym"},
      {{.bits = 4, .group_size = 32, .scale_type = ScaleType::kBFloat16}, "int4_g32_bf16"},
      {{.bits = 8, .symmetric = false, .scale_type = ScaleType::kFloat32}, "int8_asym_f32"},
      {{.bits = 2, .group_size = 16}, "int2_g16"},
      {{.bits = 4, .symmetric = false, .group_size = 32, .minimum = true}, "int4_g32_min"},
      {{.bits = 4, .group_size = 64, .codebook = Codebook::kNf4}, "nf4_g64"},
      {{.bits = 4, .group_size = 32, .codebook = Codebook::kE2m1}, "fp4_g32"},
      {{.bits = 8, .codebook = Codebook::kE4m3}, "fp8_e4m3"},
      {{.bits = 8, .group_size = 128, .scale_type = ScaleType::kE4m3, .codebook = Codebook::kE5m2},
       "fp8_e5m2_g128_e4m3"},
      {{.bits = 8, .scale_type = ScaleType::kE8m0, .codebook = Codebook::kE4m3}, "fp8_e4m3_e8m0"},
      {{.bits = 4, .group_size = 32, .scale_type = ScaleType::kE8m0, .codebook = Codebook::kE2m1}, "mxfp4"},
      {{.bits = 4, .group_size = 16, .scale_type = ScaleType::kE4m3, .codebook = Codebook::kE2m1}, "nvfp4"},
  };
  for (const auto& [scheme, text] : cases) {
    EXPECT_EQ(scheme.ToString(), text);
    const auto parsed = QuantScheme::Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, scheme) << text;
  }
}

TEST(QuantSchemeTest, OtherSpellingsOfTheSameScheme) {
  EXPECT_EQ(QuantScheme::Parse("int8_f16").value().ToString(), "int8");
  EXPECT_EQ(QuantScheme::Parse("fp4_g32_e8m0").value().ToString(), "mxfp4");
}

TEST(QuantSchemeTest, BadTextsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected int2, int4 or int8"},
      {"int", "expected int2, int4 or int8"},
      {"int-4", "expected int2, int4 or int8"},
      {"int3", "3-bit codes are not served"},
      {"int3_g64", "3-bit codes are not served"},
      {"int16", "16-bit codes are not served"},
      {"int4_g0", "group size \"0\""},
      {"int4_g-32", "group size \"-32\""},
      {"int4_g", "group size \"\""},
      {"int4_g1e3", "group size \"1e3\""},
      {"int4_asym_g32", "unknown part \"g32\""},
      {"int4_g32_f64", "unknown part \"f64\""},
      {"int4_g32_f16_asym", "unexpected part \"asym\""},
      {"nf4_asym", "no zero point"},
      {"fp8", "expected int2, int4 or int8"},
      {"fp8_e3m4", "expected int2, int4 or int8"},
      {"mxfp4_g32", "expected int2, int4 or int8"},
      {"INT4", "expected int2, int4 or int8"},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = QuantScheme::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(expected)) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("\"" + text + "\"")) << text;
  }
}

TEST(QuantSchemeTest, ValidateNamesTheField) {
  EXPECT_THAT(std::string((QuantScheme{.bits = 3}).Validate().message()), HasSubstr("bits may be 2, 4 or 8"));
  EXPECT_THAT(std::string((QuantScheme{.bits = 8, .codebook = Codebook::kNf4}).Validate().message()),
              HasSubstr("bits is 8, expected 4"));
  EXPECT_THAT(std::string((QuantScheme{.bits = 4, .minimum = true}).Validate().message()), HasSubstr("symmetric"));
  EXPECT_THAT(std::string((QuantScheme{.bits = 4, .symmetric = false, .scale_type = ScaleType::kE8m0, .minimum = true})
                              .Validate()
                              .message()),
              HasSubstr("found e8m0"));
  EXPECT_THAT(std::string((QuantScheme{.group_size = 0}).Validate().message()), HasSubstr("group_size is 0"));
  EXPECT_THAT(std::string((QuantScheme{.group_size = -2}).Validate().message()), HasSubstr("group_size is -2"));
}

TEST(QuantSchemeTest, GroupsAndDTypes) {
  const QuantScheme int4{.bits = 4, .group_size = 32};
  EXPECT_EQ(int4.GroupCount(40), 2);
  EXPECT_EQ(int4.GroupCount(64), 2);
  EXPECT_EQ(int4.GroupCount(0), 0);
  EXPECT_EQ(int4.CodeDType(), DType::kUInt8);
  EXPECT_EQ(QuantScheme{}.GroupCount(7), 1);
  EXPECT_EQ(QuantScheme{}.CodeDType(), DType::kInt8);
  EXPECT_EQ((QuantScheme{.symmetric = false}).CodeDType(), DType::kUInt8);
  EXPECT_EQ(QuantScheme::Parse("fp8_e4m3")->CodeDType(), DType::kUInt8);
  EXPECT_EQ(QuantScheme::Parse("mxfp4")->ScaleDType(), DType::kUInt8);
  EXPECT_EQ(QuantScheme::Parse("int4_bf16")->ScaleDType(), DType::kBFloat16);
  const QuantScheme minimum = *QuantScheme::Parse("int4_g32_min_f32");
  EXPECT_FALSE(minimum.HasZeroPoint());
  EXPECT_TRUE(QuantScheme::Parse("int4_asym")->HasZeroPoint());
  EXPECT_EQ(minimum.CodeDType(), DType::kUInt8);
  EXPECT_EQ(int4.Midpoint(), 8);
  EXPECT_EQ(minimum.Midpoint(), 0);
  EXPECT_EQ(int4.CodeBytes(41), 21);
  EXPECT_EQ((QuantScheme{.bits = 2}).CodeBytes(41), 11);
  EXPECT_TRUE(QuantScheme::Parse("nvfp4")->HasGlobalScale());
  EXPECT_FALSE(QuantScheme::Parse("mxfp4")->HasGlobalScale());
}

TEST(QuantSchemeTest, IntegerCodes) {
  EXPECT_EQ(DecodeCode({.bits = 8}, 0x80), -128.0f);
  EXPECT_EQ(DecodeCode({.bits = 8}, 0x7f), 127.0f);
  EXPECT_EQ(DecodeCode({.bits = 8, .symmetric = false}, 0xff), 255.0f);
  EXPECT_EQ(DecodeCode({.bits = 4}, 15), 7.0f);
  EXPECT_EQ(DecodeCode({.bits = 4}, 0), -8.0f);
  EXPECT_EQ(DecodeCode({.bits = 4, .symmetric = false}, 15), 15.0f);
  EXPECT_EQ(DecodeCode({.bits = 2}, 3), 1.0f);
  EXPECT_EQ(DecodeCode({.bits = 2, .symmetric = false}, 3), 3.0f);
}

TEST(QuantSchemeTest, E2m1Table) {
  const float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const QuantScheme scheme = *QuantScheme::Parse("mxfp4");
  for (uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(DecodeCode(scheme, code), values[code]);
    EXPECT_EQ(DecodeCode(scheme, code + 8), -values[code]);
  }
  EXPECT_TRUE(std::signbit(DecodeCode(scheme, 8)));
}

TEST(QuantSchemeTest, Nf4TableRisesFromMinusOneToOne) {
  const QuantScheme scheme = *QuantScheme::Parse("nf4_g64");
  EXPECT_EQ(DecodeCode(scheme, 0), -1.0f);
  EXPECT_EQ(DecodeCode(scheme, 7), 0.0f);
  EXPECT_EQ(DecodeCode(scheme, 8), 0.07958029955625534f);
  EXPECT_EQ(DecodeCode(scheme, 15), 1.0f);
  for (uint8_t code = 1; code < 16; ++code) EXPECT_LT(DecodeCode(scheme, code - 1), DecodeCode(scheme, code));
}

TEST(QuantSchemeTest, E4m3) {
  const QuantScheme scheme = *QuantScheme::Parse("fp8_e4m3");
  EXPECT_EQ(DecodeCode(scheme, 0x00), 0.0f);
  EXPECT_EQ(DecodeCode(scheme, 0x01), 0x1p-9f);
  EXPECT_EQ(DecodeCode(scheme, 0x07), 0x7p-9f);
  EXPECT_EQ(DecodeCode(scheme, 0x08), 0x1p-6f);
  EXPECT_EQ(DecodeCode(scheme, 0x38), 1.0f);
  EXPECT_EQ(DecodeCode(scheme, 0x78), 256.0f);  // no infinity: the exponent of all ones counts
  EXPECT_EQ(DecodeCode(scheme, 0x7e), 448.0f);
  EXPECT_EQ(DecodeCode(scheme, 0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(DecodeCode(scheme, 0x7f)));
  EXPECT_TRUE(std::isnan(DecodeCode(scheme, 0xff)));
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float code = DecodeCode(scheme, static_cast<uint8_t>(bits)), scale = DecodeScale(ScaleType::kE4m3, bits);
    EXPECT_TRUE(code == scale || (std::isnan(code) && std::isnan(scale)));
  }
}

TEST(QuantSchemeTest, E5m2IsTheUpperHalfOfAHalf) {
  const QuantScheme scheme = *QuantScheme::Parse("fp8_e5m2");
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float code = DecodeCode(scheme, static_cast<uint8_t>(bits));
    const float half = HalfToFloat(static_cast<uint16_t>(bits << 8));
    EXPECT_TRUE((code == half && std::signbit(code) == std::signbit(half)) || (std::isnan(code) && std::isnan(half)))
        << bits;
  }
}

TEST(QuantSchemeTest, Scales) {
  EXPECT_EQ(DecodeScale(ScaleType::kE8m0, 127), 1.0f);
  EXPECT_EQ(DecodeScale(ScaleType::kE8m0, 0), 0x1p-127f);
  EXPECT_EQ(DecodeScale(ScaleType::kE8m0, 254), 0x1p127f);
  EXPECT_TRUE(std::isnan(DecodeScale(ScaleType::kE8m0, 255)));
  EXPECT_EQ(DecodeScale(ScaleType::kFloat16, 0x3c00), 1.0f);
  EXPECT_EQ(DecodeScale(ScaleType::kBFloat16, 0x3f80), 1.0f);
  EXPECT_EQ(DecodeScale(ScaleType::kFloat32, 0x3f800000), 1.0f);
}

}  // namespace
}  // namespace clikart::ir
