#include "clikart/codegen/product.h"

#include "gtest/gtest.h"
#include "recorded_cpus.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;
using ir::DType;

int Interleave(Contraction contraction, DType w, const Target& target, MathMode math) {
  ir::KernelSpec spec;
  spec.contraction = contraction;
  spec.w = w;
  return InterleaveFor(spec, target, math);
}

int CodeInterleave(Contraction contraction, std::string_view scheme) {
  ir::KernelSpec spec;
  spec.contraction = contraction;
  spec.scheme = ir::QuantScheme::Parse(scheme).value();
  return InterleaveFor(spec, Target{}, MathMode::kNative);
}

TEST(InterleaveFor, FollowsTheWidthOfCodes) {
  EXPECT_EQ(CodeInterleave(Contraction::kWeightOnly, "int8"), 1);
  EXPECT_EQ(CodeInterleave(Contraction::kRowInt8, "int8"), 4);
  for (const Contraction contraction : {Contraction::kWeightOnly, Contraction::kRowInt8}) {
    EXPECT_EQ(CodeInterleave(contraction, "int4_g32"), 8);
    EXPECT_EQ(CodeInterleave(contraction, "int2_g32"), 16);
  }
}

TEST(InterleaveFor, FollowsTypesTargetAndMath) {
  const Target spr = Detect(SapphireRapids(), kWidestIsa), gnr = Detect(GraniteRapids(), kWidestIsa);
  for (const Target& target : {Target{}, TargetOf(IsaLevel::kAvx2), spr, gnr}) {
    for (const MathMode math : {MathMode::kNative, MathMode::kExact}) {
      EXPECT_EQ(Interleave(Contraction::kFloat, DType::kFloat32, target, math), 1);
      EXPECT_EQ(Interleave(Contraction::kFloat, DType::kBFloat16, target, math), 2);
      EXPECT_EQ(Interleave(Contraction::kInteger, DType::kInt8, target, math), 4);
      EXPECT_EQ(Interleave(Contraction::kDepthwise, DType::kBFloat16, target, math), 1);
      const int halves = target == gnr && math == MathMode::kNative ? 2 : 1;
      EXPECT_EQ(Interleave(Contraction::kFloat, DType::kFloat16, target, math), halves) << target.ToString();
    }
  }
}

TEST(ProductFor, FollowsTypesTargetAndMath) {
  const Target cooper = TargetOf(IsaLevel::kAvx512Bf16);
  for (const Target& target : {Target{}, TargetOf(IsaLevel::kAvx512Vnni), cooper}) {
    for (const MathMode math : {MathMode::kNative, MathMode::kExact}) {
      for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        for (const DType w : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
          ir::KernelSpec spec;
          spec.k = 3;
          spec.x = x;
          spec.w = w;
          const bool dot =
              x == DType::kBFloat16 && w == DType::kBFloat16 && target == cooper && math == MathMode::kNative;
          EXPECT_EQ(ProductFor(spec, target, math), dot ? ir::Product::kDotBf16 : ir::Product::kFma);
          spec.contraction = Contraction::kDepthwise;
          EXPECT_EQ(ProductFor(spec, target, math), ir::Product::kFma);
        }
      }
    }
  }
}

ir::KernelSpec Spec(DType dtype, int64_t k) {
  ir::KernelSpec spec;
  spec.n = 16;
  spec.k = k;
  spec.x = spec.w = dtype;
  return spec;
}

TEST(ProductFor, TilesMultiplyWhereTheTargetHasThemAndTheDepthFillsThem) {
  const Target spr = Detect(SapphireRapids(), kWidestIsa), gnr = Detect(GraniteRapids(), kWidestIsa);
  const ir::KernelSpec bf16 = Spec(DType::kBFloat16, 32), f16 = Spec(DType::kFloat16, 32);
  EXPECT_EQ(ProductFor(bf16, spr, MathMode::kNative), ir::Product::kTileBf16);
  EXPECT_EQ(ProductFor(bf16, gnr, MathMode::kNative), ir::Product::kTileBf16);
  EXPECT_EQ(ProductFor(f16, spr, MathMode::kNative), ir::Product::kFma);
  EXPECT_EQ(ProductFor(f16, gnr, MathMode::kNative), ir::Product::kTileF16);
  EXPECT_EQ(ProductFor(bf16, gnr, MathMode::kExact), ir::Product::kFma);
  EXPECT_EQ(ProductFor(f16, gnr, MathMode::kExact), ir::Product::kFma);
  EXPECT_EQ(ProductFor(Spec(DType::kFloat32, 64), gnr, MathMode::kNative), ir::Product::kFma);
  EXPECT_EQ(ProductFor(Spec(DType::kBFloat16, 31), gnr, MathMode::kNative), ir::Product::kDotBf16);
  EXPECT_EQ(ProductFor(Spec(DType::kFloat16, 31), gnr, MathMode::kNative), ir::Product::kFma);
  ir::KernelSpec conv = Spec(DType::kBFloat16, 4);
  conv.access = ir::Access::kIndirect;
  conv.taps = 9;
  EXPECT_EQ(ProductFor(conv, gnr, MathMode::kNative), ir::Product::kTileBf16);
}

// Weights that decode to bf16 by rows of bf16, in groups that are whole tiles.
TEST(ProductFor, TilesMultiplyCodesWhereGroupsFillThem) {
  const Target spr = Detect(SapphireRapids(), kWidestIsa), cooper = TargetOf(IsaLevel::kAvx512Bf16);
  const auto product = [](std::string_view scheme, DType x, int64_t k, const Target& target,
                          MathMode math = MathMode::kNative) {
    ir::KernelSpec spec = Spec(x, k);
    spec.contraction = Contraction::kWeightOnly;
    spec.scheme = ir::QuantScheme::Parse(scheme).value();
    spec.w = spec.scheme->CodeDType();
    spec.interleave = InterleaveFor(spec, target, math);
    spec.product = ProductFor(spec, target, math);
    EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
    ir::KernelSpec other = spec;
    other.n = 3;
    other.order = ir::InputOrder::kSorted;
    EXPECT_EQ(ProductFor(other, target, math), spec.product);
    other.order = ir::InputOrder::kUneven;
    EXPECT_EQ(ProductFor(other, target, math), ir::Product::kFma);
    return spec.product;
  };
  for (const std::string_view scheme :
       {"int8", "int4_g32", "int4_g128_asym", "int2_g64", "int4_g32_min", "mxfp4", "fp8_e4m3", "fp8_e5m2_g32"}) {
    EXPECT_EQ(product(scheme, DType::kBFloat16, 32, spr), ir::Product::kTileBf16) << scheme;
    EXPECT_EQ(product(scheme, DType::kBFloat16, 1000, spr), ir::Product::kTileBf16) << scheme;
    EXPECT_EQ(product(scheme, DType::kBFloat16, 31, spr), ir::Product::kFma) << scheme;
    EXPECT_EQ(product(scheme, DType::kBFloat16, 64, spr, MathMode::kExact), ir::Product::kFma) << scheme;
    EXPECT_EQ(product(scheme, DType::kBFloat16, 64, cooper), ir::Product::kFma) << scheme;
    EXPECT_EQ(product(scheme, DType::kFloat32, 64, spr), ir::Product::kFma) << scheme;
    EXPECT_EQ(product(scheme, DType::kFloat16, 64, spr), ir::Product::kFma) << scheme;
  }
  for (const std::string_view scheme : {"nvfp4", "int4_g48", "nf4_g64", "int8_g5_asym"}) {
    EXPECT_EQ(product(scheme, DType::kBFloat16, 64, spr), ir::Product::kFma) << scheme;
  }
}

// compute="int8": whole numbers, so that the mode does not matter; groups that are worth a tile.
TEST(ProductFor, TilesMultiplyRowsOfCodesWhereGroupsAreLongEnough) {
  const Target spr = Detect(SapphireRapids(), kWidestIsa), ice = Detect(IceLakeServer(), kWidestIsa);
  const auto product = [](std::string_view scheme, DType x, int64_t k, const Target& target) {
    ir::KernelSpec spec = Spec(x, k);
    spec.contraction = Contraction::kRowInt8;
    spec.scheme = ir::QuantScheme::Parse(scheme).value();
    spec.w = spec.scheme->CodeDType();
    spec.interleave = InterleaveFor(spec, target, MathMode::kNative);
    spec.product = ProductFor(spec, target, MathMode::kNative);
    EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
    EXPECT_EQ(ProductFor(spec, target, MathMode::kExact), spec.product);
    ir::KernelSpec other = spec;
    other.n = 3;
    other.order = ir::InputOrder::kSorted;
    EXPECT_EQ(ProductFor(other, target, MathMode::kNative), spec.product);
    other.order = ir::InputOrder::kUneven;
    EXPECT_EQ(ProductFor(other, target, MathMode::kNative), ir::Product::kFma);
    return spec.product;
  };
  for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const std::string_view scheme : {"int8", "int4_g32", "int4_g50_asym", "int2_g128_min"}) {
      EXPECT_EQ(product(scheme, x, 32, spr), ir::Product::kTileInt8) << scheme;
      EXPECT_EQ(product(scheme, x, 1000, spr), ir::Product::kTileInt8) << scheme;
      EXPECT_EQ(product(scheme, x, 31, spr), ir::Product::kFma) << scheme;
      EXPECT_EQ(product(scheme, x, 64, ice), ir::Product::kFma) << scheme;
    }
    EXPECT_EQ(product("int4_g16", x, 64, spr), ir::Product::kFma);
    EXPECT_EQ(product("int8_g31", x, 64, spr), ir::Product::kFma);
  }
  // Few rows are multiplied by dot products.
  const Target no_dots{{Feature::kSse42, Feature::kAvx2, Feature::kAvx512, Feature::kAmxInt8}};
  EXPECT_EQ(product("int8", DType::kFloat32, 64, no_dots), ir::Product::kFma);
}

// A spec resolved for any CPU is one that Verify takes: product and interleave go together.
TEST(ProductFor, FitsTheInterleave) {
  for (const IsaLevel level : AllIsaLevels()) {
    for (const MathMode math : {MathMode::kNative, MathMode::kExact}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        ir::KernelSpec spec = Spec(dtype, 100);
        spec.interleave = InterleaveFor(spec, TargetOf(level), math);
        spec.product = ProductFor(spec, TargetOf(level), math);
        EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
      }
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
