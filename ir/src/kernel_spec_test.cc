#include "clikart/ir/kernel_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace clikart::ir {
namespace {

using ::testing::HasSubstr;

KernelSpec FloatSpec() {
  KernelSpec spec;
  spec.n = 96;
  spec.k = 40;
  spec.bias = BiasKind::kFloat32;
  spec.activation = Activation::kGelu;
  return spec;
}

KernelSpec WeightOnlySpec() {
  KernelSpec spec;
  spec.contraction = Contraction::kWeightOnly;
  spec.n = 96;
  spec.k = 40;
  spec.scheme = QuantScheme{.bits = 4, .symmetric = false, .group_size = 32};
  spec.w = spec.scheme->CodeDType();
  spec.interleave = 8;
  return spec;
}

KernelSpec IntegerSpec() {
  KernelSpec spec;
  spec.contraction = Contraction::kInteger;
  spec.n = 96;
  spec.k = 40;
  spec.x = spec.y = DType::kUInt8;
  spec.w = DType::kInt8;
  spec.interleave = 4;
  spec.requantize = true;
  return spec;
}

KernelSpec DepthwiseSpec() {
  KernelSpec spec;
  spec.contraction = Contraction::kDepthwise;
  spec.access = Access::kIndirect;
  spec.n = 96;
  spec.k = 1;
  spec.taps = 9;
  spec.bias = BiasKind::kFloat32;
  spec.activation = Activation::kRelu6;
  return spec;
}

// Fails to compile when KernelSpec gains a field, so that nobody adds one without its mutation below.
constexpr int kFields = 15;
void CountFields(const KernelSpec& spec) {
  const auto& [contraction, access, n, k, taps, x, w, y, bias, activation, product, interleave, scheme, order,
               requantize] = spec;
  (void)contraction, (void)access, (void)n, (void)k, (void)taps, (void)x, (void)w, (void)y, (void)bias;
  (void)activation, (void)product, (void)interleave, (void)scheme, (void)order, (void)requantize;
}

std::vector<std::function<void(KernelSpec&)>> FieldMutations() {
  return {
      [](KernelSpec& s) { s.contraction = Contraction::kRowInt8; },
      [](KernelSpec& s) { s.access = Access::kIndirect; },
      [](KernelSpec& s) { s.n += 1; },
      [](KernelSpec& s) { s.k += 1; },
      [](KernelSpec& s) { s.taps += 1; },
      [](KernelSpec& s) { s.x = DType::kBFloat16; },
      [](KernelSpec& s) { s.w = DType::kFloat16; },
      [](KernelSpec& s) { s.y = DType::kFloat16; },
      [](KernelSpec& s) { s.bias = BiasKind::kNone; },
      [](KernelSpec& s) { s.activation = Activation::kSilu; },
      [](KernelSpec& s) { s.product = Product::kTileBf16; },
      [](KernelSpec& s) { s.interleave = 2; },
      [](KernelSpec& s) { s.scheme = QuantScheme{.bits = 8}; },
      [](KernelSpec& s) { s.order = InputOrder::kSorted; },
      [](KernelSpec& s) { s.requantize = true; },
  };
}

TEST(KernelSpecTest, C063_EveryFieldChangesTheSignature) {
  const KernelSpec base = FloatSpec();
  CountFields(base);
  const auto mutations = FieldMutations();
  ASSERT_EQ(mutations.size(), kFields);
  std::set<std::string> texts = {base.ToString()};
  std::set<uint64_t> hashes = {base.Hash()};
  for (const auto& mutate : mutations) {
    KernelSpec spec = base;
    mutate(spec);
    EXPECT_NE(spec, base);
    EXPECT_TRUE(texts.insert(spec.ToString()).second) << spec.ToString();
    EXPECT_TRUE(hashes.insert(spec.Hash()).second) << spec.ToString();
    const auto parsed = KernelSpec::Parse(spec.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, spec);
  }
}

TEST(KernelSpecTest, EverySchemeFieldChangesTheSignature) {
  const QuantScheme base{.bits = 8};
  const auto& [bits, symmetric, group_size, scale_type, codebook, minimum] = base;  // a new field must come in below
  (void)bits, (void)symmetric, (void)group_size, (void)scale_type, (void)codebook, (void)minimum;
  const std::vector<QuantScheme> schemes = {
      base,
      {.bits = 4},
      {.bits = 8, .symmetric = false},
      {.bits = 8, .symmetric = false, .minimum = true},
      {.bits = 8, .group_size = 32},
      {.bits = 8, .scale_type = ScaleType::kFloat32},
      {.bits = 8, .codebook = Codebook::kE4m3},
  };
  std::set<std::string> texts;
  for (const QuantScheme& scheme : schemes) {
    KernelSpec spec = WeightOnlySpec();
    spec.scheme = scheme;
    EXPECT_TRUE(texts.insert(spec.ToString()).second) << spec.ToString();
    EXPECT_EQ(KernelSpec::Parse(spec.ToString()).value(), spec);
  }
}

TEST(KernelSpecTest, EveryEnumValueSurvivesTheText) {
  for (Activation activation : AllActivations()) {
    KernelSpec spec = FloatSpec();
    spec.activation = activation;
    EXPECT_EQ(KernelSpec::Parse(spec.ToString()).value(), spec);
  }
  for (auto contraction : {Contraction::kFloat, Contraction::kWeightOnly, Contraction::kRowInt8, Contraction::kInteger,
                           Contraction::kDepthwise}) {
    for (auto dtype :
         {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kUInt8, DType::kInt32}) {
      KernelSpec spec = FloatSpec();
      spec.contraction = contraction;
      spec.x = spec.w = spec.y = dtype;
      EXPECT_EQ(KernelSpec::Parse(spec.ToString()).value(), spec);
    }
  }
}

TEST(KernelSpecTest, EveryProductSurvivesTheText) {
  for (auto product : {Product::kFma, Product::kDotBf16, Product::kTileBf16, Product::kTileF16}) {
    KernelSpec spec = FloatSpec();
    spec.x = spec.w = product == Product::kTileF16 ? DType::kFloat16 : DType::kBFloat16;
    spec.product = product;
    spec.interleave = 2;
    EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
    EXPECT_EQ(KernelSpec::Parse(spec.ToString()).value(), spec);
  }
  KernelSpec codes = WeightOnlySpec();
  codes.contraction = Contraction::kRowInt8;
  codes.product = Product::kTileInt8;
  EXPECT_TRUE(codes.Verify().ok()) << codes.Verify();
  EXPECT_EQ(KernelSpec::Parse(codes.ToString()).value(), codes);
}

TEST(KernelSpecTest, VerifyNamesAProductOrInterleaveThatDoesNotFit) {
  const auto message = [](KernelSpec spec, const std::function<void(KernelSpec&)>& mutate) {
    mutate(spec);
    return std::string(spec.Verify().message());
  };
  const auto bf16 = [](KernelSpec& s) {
    s.x = s.w = DType::kBFloat16;
    s.product = Product::kDotBf16;
    s.interleave = 2;
  };
  EXPECT_EQ(message(FloatSpec(), bf16), "");
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.interleave = 3; }), HasSubstr("interleave is 3"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.interleave = 2; }), HasSubstr("interleave is 2"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.interleave = 4; }), HasSubstr("interleave is 4"));
  EXPECT_THAT(message(IntegerSpec(), [](KernelSpec& s) { s.interleave = 1; }), HasSubstr("interleave is 1"));
  EXPECT_THAT(message(IntegerSpec(), [](KernelSpec& s) { s.interleave = 2; }), HasSubstr("interleave is 2"));
  EXPECT_THAT(message(FloatSpec(), [&](KernelSpec& s) { bf16(s), s.interleave = 4; }), HasSubstr("interleave is 4"));
  EXPECT_THAT(message(FloatSpec(), [&](KernelSpec& s) { bf16(s), s.interleave = 1; }), HasSubstr("interleave is 1"));
  EXPECT_THAT(message(FloatSpec(), [&](KernelSpec& s) { bf16(s), s.x = DType::kFloat32; }),
              HasSubstr("product is dot_bf16"));
  EXPECT_THAT(message(FloatSpec(), [&](KernelSpec& s) { bf16(s), s.product = Product::kTileF16; }),
              HasSubstr("product is tile_f16"));
  EXPECT_THAT(message(FloatSpec(), [&](KernelSpec& s) { bf16(s), s.product = Product::kTileInt8; }),
              HasSubstr("product is tile_int8"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.product = Product::kTileInt8; }),
              HasSubstr("product is tile_int8"));
  EXPECT_THAT(message(IntegerSpec(), [](KernelSpec& s) { s.product = Product::kTileBf16; }),
              HasSubstr("product is tile_bf16"));
  EXPECT_THAT(message(DepthwiseSpec(), [&](KernelSpec& s) { bf16(s), s.interleave = 1; }),
              HasSubstr("product is dot_bf16"));
}

TEST(KernelSpecTest, TheTextIsStable) {
  KernelSpec spec = WeightOnlySpec();
  EXPECT_THAT(spec.ToString(), HasSubstr("kind=weight_only access=dense n=96 k=40 taps=1 x=f32 w=u8 y=f32 bias=none"));
  EXPECT_THAT(spec.ToString(),
              HasSubstr("product=fma interleave=8 scheme=int4_g32_asym@13fdf84d829c1708 order=natural out=real"));
}

TEST(KernelSpecTest, ParseNamesTheFieldThatIsWrong) {
  const std::string good = FloatSpec().ToString();
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "kind"},
      {replaced("kind=float", "kind=floaty"), "kind: found \"floaty\""},
      {replaced("n=96", "n=+96"), "n: \"+96\""},
      {replaced("n=96", "n=096"), "n: \"096\""},
      {replaced("n=96", "n=99999999999999999999"), "n: "},
      {replaced("n=96 ", ""), "n: found \"k=40\""},
      {replaced("x=f32", "x=float32"), "x: \"float32\""},
      {replaced("act=gelu@", "act=gelu@0"), "another formula"},
      {replaced("product=fma", "product=mul"), "product: found \"mul\""},
      {replaced("interleave=1", "interleave=two"), "interleave: \"two\""},
      {replaced("interleave=1", "interleave=4294967297"), "interleave: 4294967297"},
      {replaced("act=gelu", "act=golu"), "unknown activation"},
      {replaced("scheme=none", "scheme=int3"), "int3"},
      {replaced("scheme=none", "scheme=fp4_g32_e8m0"), "expected mxfp4"},
      {good + " more=1", "end: found \"more=1\""},
      {good.substr(0, good.rfind(' ')), "out: missing"},
      {"  " + good, "kind"},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = KernelSpec::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(expected)) << text;
  }
}

TEST(KernelSpecTest, VerifyAcceptsWhatIsServed) {
  EXPECT_TRUE(FloatSpec().Verify().ok());
  EXPECT_TRUE(WeightOnlySpec().Verify().ok());
  EXPECT_TRUE(IntegerSpec().Verify().ok());
  EXPECT_TRUE(DepthwiseSpec().Verify().ok());
  KernelSpec conv = FloatSpec();
  conv.access = Access::kIndirect;
  conv.taps = 9;
  conv.x = DType::kBFloat16;
  EXPECT_TRUE(conv.Verify().ok());
  KernelSpec empty = FloatSpec();
  empty.n = empty.k = 0;
  EXPECT_TRUE(empty.Verify().ok());
}

TEST(KernelSpecTest, VerifyNamesTheField) {
  const auto message = [](KernelSpec spec, const std::function<void(KernelSpec&)>& mutate) {
    mutate(spec);
    return std::string(spec.Verify().message());
  };
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.n = -1; }), HasSubstr("n is -1"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.k = int64_t{1} << 62; }), HasSubstr("k is "));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.taps = 2; }), HasSubstr("taps is 2"));
  EXPECT_THAT(message(FloatSpec(),
                      [](KernelSpec& s) {
                        s.access = Access::kIndirect;
                        s.k = s.taps = int64_t{1} << 30;
                      }),
              HasSubstr("taps * k"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.activation = Activation::kSwiglu; }), HasSubstr("bias"));
  EXPECT_THAT(message(WeightOnlySpec(),
                      [](KernelSpec& s) {
                        s.activation = Activation::kSwiglu;
                        s.n = 7;
                      }),
              HasSubstr("n is 7"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.w = DType::kInt8; }), HasSubstr("w is int8"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.x = DType::kInt8; }), HasSubstr("x is int8"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.scheme = QuantScheme{}; }), HasSubstr("scheme is int8"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.order = InputOrder::kSorted; }), HasSubstr("order"));
  EXPECT_THAT(message(FloatSpec(), [](KernelSpec& s) { s.requantize = true; }), HasSubstr("out is requantized"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.scheme.reset(); }), HasSubstr("scheme is none"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.w = DType::kInt8; }), HasSubstr("w is int8"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.scheme->bits = 3; }), HasSubstr("3-bit"));
  EXPECT_THAT(message(WeightOnlySpec(), [](KernelSpec& s) { s.access = Access::kIndirect; }), HasSubstr("access"));
  EXPECT_THAT(message(WeightOnlySpec(),
                      [](KernelSpec& s) {
                        s.contraction = Contraction::kRowInt8;
                        s.scheme = QuantScheme{.bits = 4, .codebook = Codebook::kNf4};
                      }),
              HasSubstr("integer codes"));
  EXPECT_THAT(message(DepthwiseSpec(), [](KernelSpec& s) { s.k = 2; }), HasSubstr("k is 2"));
  EXPECT_THAT(message(DepthwiseSpec(), [](KernelSpec& s) { s.w = DType::kInt8; }), HasSubstr("w is int8"));
  EXPECT_THAT(message(DepthwiseSpec(), [](KernelSpec& s) { s.scheme = QuantScheme{}; }), HasSubstr("scheme"));
  EXPECT_THAT(message(DepthwiseSpec(),
                      [](KernelSpec& s) {
                        s.bias = BiasKind::kNone;
                        s.activation = Activation::kSwiglu;
                      }),
              HasSubstr("act is swiglu"));
  EXPECT_THAT(message(DepthwiseSpec(), [](KernelSpec& s) { s.access = Access::kDense; }), HasSubstr("taps is 9"));
  EXPECT_THAT(message(IntegerSpec(), [](KernelSpec& s) { s.y = DType::kInt8; }), HasSubstr("y is int8"));
  EXPECT_THAT(message(IntegerSpec(), [](KernelSpec& s) { s.x = DType::kFloat32; }), HasSubstr("x is float32"));
}

}  // namespace
}  // namespace clikart::ir
