#include "clikart/codegen/product.h"

#include "gtest/gtest.h"
#include "recorded_cpus.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;
using ir::DType;

TEST(InterleaveFor, FollowsTypesTargetAndMath) {
  const Target spr = Detect(SapphireRapids(), kWidestIsa), gnr = Detect(GraniteRapids(), kWidestIsa);
  for (const Target& target : {Target{}, TargetOf(IsaLevel::kAvx2), spr, gnr}) {
    for (const MathMode math : {MathMode::kNative, MathMode::kExact}) {
      EXPECT_EQ(InterleaveFor(Contraction::kFloat, DType::kFloat32, target, math), 1);
      EXPECT_EQ(InterleaveFor(Contraction::kFloat, DType::kBFloat16, target, math), 2);
      EXPECT_EQ(InterleaveFor(Contraction::kInteger, DType::kInt8, target, math), 4);
      EXPECT_EQ(InterleaveFor(Contraction::kDepthwise, DType::kBFloat16, target, math), 1);
      EXPECT_EQ(InterleaveFor(Contraction::kWeightOnly, DType::kUInt8, target, math), 1);
      EXPECT_EQ(InterleaveFor(Contraction::kRowInt8, DType::kInt8, target, math), 1);
      const int halves = target == gnr && math == MathMode::kNative ? 2 : 1;
      EXPECT_EQ(InterleaveFor(Contraction::kFloat, DType::kFloat16, target, math), halves) << target.ToString();
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

}  // namespace
}  // namespace clikart::codegen
