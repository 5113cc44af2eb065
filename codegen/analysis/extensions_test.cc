#include "clikart/analysis/extensions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clikart/analysis/disassembly.h"
#include "gtest/gtest.h"

namespace clikart::analysis {
namespace {

using Bytes = std::vector<uint8_t>;

std::string Needs(const Bytes& bytes) {
  const absl::StatusOr<std::vector<Line>> lines = Disassemble(bytes);
  if (!lines.ok() || lines->size() != 1) return "not one instruction";
  const ExtensionSet set = ExtensionsOf(bytes, lines->front().text);
  std::string names = lines->front().text;
  if (names.starts_with("{vex} ")) names.erase(0, 6);
  names.resize(std::min(names.find(' '), names.size()));
  for (int i = 0; i < kExtensionCount; ++i) {
    if (set.Has(static_cast<Extension>(i))) absl::StrAppend(&names, " ", std::string(Name(static_cast<Extension>(i))));
  }
  return names;
}

TEST(Extensions, AreToldApart) {
  EXPECT_EQ(Needs({0x48, 0x83, 0xc0, 0x40}), "add x86-64");
  EXPECT_EQ(Needs({0x0f, 0x58, 0xc1}), "addps x86-64");
  EXPECT_EQ(Needs({0x66, 0x0f, 0x38, 0x40, 0xc1}), "pmulld SSE3-4.2");
  EXPECT_EQ(Needs({0xc5, 0xfc, 0x58, 0xc1}), "vaddps AVX");
  EXPECT_EQ(Needs({0xc5, 0xfd, 0xfe, 0xc1}), "vpaddd AVX2");
  EXPECT_EQ(Needs({0xc5, 0xf9, 0xfe, 0xc1}), "vpaddd AVX");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x7d, 0x18, 0xc1}), "vbroadcastss AVX2");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x7d, 0x18, 0x00}), "vbroadcastss AVX");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x75, 0xb8, 0xc2}), "vfmadd231ps FMA");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x7d, 0x13, 0xc1}), "vcvtph2ps F16C");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x78, 0xf7, 0xc1}), "bextr BMI");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x75, 0x50, 0xc2}), "vpdpbusd AVX-VNNI");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x77, 0x50, 0xc2}), "vpdpbssd other");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x7a, 0x72, 0xc1}), "vcvtneps2bf16 other");  // AVX-NE-CONVERT
  EXPECT_EQ(Needs({0xc4, 0xe2, 0xf5, 0xb4, 0xc2}), "vpmadd52luq other");
  EXPECT_EQ(Needs({0xf3, 0x0f, 0xbd, 0xc1}), "lzcnt other");
}

TEST(Extensions, OfAvx512) {
  EXPECT_EQ(Needs({0x62, 0xf2, 0x75, 0x48, 0xb8, 0xc2}), "vfmadd231ps AVX512F");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x75, 0x28, 0xb8, 0xc2}), "vfmadd231ps AVX512F AVX512VL");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x75, 0x18, 0xb8, 0xc2}), "vfmadd231ps AVX512F");  // rounds to nearest, on zmm
  EXPECT_EQ(Needs({0x62, 0xf1, 0x7f, 0x48, 0x6f, 0x00}), "vmovdqu8 AVX512BW");
  EXPECT_EQ(Needs({0x62, 0xf1, 0xff, 0x08, 0x6f, 0x00}), "vmovdqu16 AVX512BW AVX512VL");
  EXPECT_EQ(Needs({0x62, 0xf1, 0x75, 0x48, 0xdb, 0xc2}), "vpandd AVX512F");
  EXPECT_EQ(Needs({0x62, 0xf1, 0x74, 0x48, 0x54, 0xc2}), "vandps AVX512DQ");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x7d, 0x48, 0x31, 0xc1}), "vpmovzxbd AVX512F");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x7e, 0x48, 0x31, 0xc1}), "vpmovdb AVX512F");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x7d, 0x48, 0x13, 0xc1}), "vcvtph2ps AVX512F");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2}), "vpdpbusd AVX512-VNNI");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x76, 0x48, 0x52, 0xc2}), "vdpbf16ps AVX512-BF16");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x7e, 0x48, 0x72, 0xc1}), "vcvtneps2bf16 AVX512-BF16");
  EXPECT_EQ(Needs({0x62, 0xf6, 0x7d, 0x48, 0x13, 0xc1}), "vcvtph2psx AVX512-FP16");
  EXPECT_EQ(Needs({0x62, 0xf5, 0x74, 0x48, 0x58, 0xc2}), "vaddph AVX512-FP16");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x7d, 0x48, 0xc4, 0xc1}), "vpconflictd other");
  EXPECT_EQ(Needs({0x62, 0xf2, 0x75, 0x48, 0x8d, 0xc2}), "vpermb other");
  EXPECT_EQ(Needs({0x62, 0xf2, 0xf5, 0x48, 0x8d, 0xc2}), "vpermw AVX512BW");
  EXPECT_EQ(Needs({0xc5, 0xf8, 0x92, 0xc8}), "kmovw AVX512F");
  EXPECT_EQ(Needs({0xc5, 0xfb, 0x92, 0xc8}), "kmovd AVX512BW");
  EXPECT_EQ(Needs({0xc5, 0xf9, 0x92, 0xc8}), "kmovb AVX512DQ");
}

TEST(Extensions, OfTiles) {
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x78, 0x49, 0xc0}), "tilerelease AMX-TILE");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x6a, 0x5c, 0xc1}), "tdpbf16ps AMX-BF16");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x6b, 0x5c, 0xc1}), "tdpfp16ps AMX-FP16");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x6b, 0x5e, 0xc1}), "tdpbssd AMX-INT8");
  EXPECT_EQ(Needs({0xc4, 0xe2, 0x79, 0x6c, 0xc1}), "tcmmimfp16ps other");
}

TEST(Extensions, ATargetAllowsItsOwn) {
  using codegen::IsaLevel;
  const auto allows = [](IsaLevel level, Extension extension) {
    ExtensionSet set;
    set.Add(extension);
    return Allows(codegen::TargetOf(level), set);
  };
  EXPECT_TRUE(allows(IsaLevel::kBaseline, Extension::kBase));
  EXPECT_FALSE(allows(IsaLevel::kBaseline, Extension::kSse42));
  EXPECT_FALSE(allows(IsaLevel::kSse4, Extension::kAvx));
  EXPECT_TRUE(allows(IsaLevel::kAvx2, Extension::kF16c));
  EXPECT_FALSE(allows(IsaLevel::kAvx2, Extension::kAvxVnni));
  EXPECT_FALSE(allows(IsaLevel::kAvx512, Extension::kAvx512Vnni));
  EXPECT_FALSE(allows(IsaLevel::kAvx512Fp16, Extension::kAmxTile));
  EXPECT_TRUE(allows(IsaLevel::kAmx, Extension::kAmxTile));
  EXPECT_FALSE(allows(IsaLevel::kAmx, Extension::kOther));
}

}  // namespace
}  // namespace clikart::analysis
