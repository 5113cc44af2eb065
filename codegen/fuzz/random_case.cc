// What the fuzzer draws from. Sizes are mostly small and often next to a multiple of something.
#include <algorithm>
#include <array>

#include "case.h"
#include "clikart/ir/activation.h"
#include "clikart/ir/code_layout.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;
using ir::DType;

constexpr std::array kFloats = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}

  int64_t Between(int64_t first, int64_t last) { return std::uniform_int_distribution(first, last)(random_); }
  bool OneIn(int64_t count) { return Between(1, count) == 1; }
  template <typename Values>
  auto OneOf(const Values& values) {
    return *(std::begin(values) + Between(0, static_cast<int64_t>(std::size(values)) - 1));
  }

  // Up to `limit`.
  int64_t Size(int64_t limit) {
    if (OneIn(2)) return std::min(limit, Between(0, 9));
    if (OneIn(2)) return Between(0, limit);
    constexpr int64_t kUnits[] = {8, 16, 32, 64, 256};
    const int64_t unit = OneOf(kUnits);
    return std::clamp<int64_t>(unit * Between(1, std::max<int64_t>(1, limit / unit)) + Between(-1, 1), 0, limit);
  }

 private:
  std::mt19937_64& random_;
};

ir::QuantScheme RandomScheme(Draw& draw, bool integer_codes) {
  constexpr const char* kSchemes[] = {
      "int8",           "int8_g32",         "int8_g5_asym",   "int8_asym_bf16", "int4",           "int4_g32_f32",
      "int4_g128_asym", "int4_g7_asym_f32", "int8_f32",       "int4_g16_asym",  "int8_asym_e8m0", "int4_g32_min",
      "int2_g16",       "int8_g16_min_f32", "int4_g256_bf16", "int4_g64",       "int2_g50_asym",  "nf4_g8",
      "fp4_g16_bf16",   "fp8_e4m3",         "fp8_e5m2_g12",   "mxfp4",          "nvfp4",          "fp8_e4m3_g16_e8m0",
      "nf4_g64"};
  constexpr size_t kIntegers = 17;
  const auto schemes = std::span(kSchemes).first(integer_codes ? kIntegers : std::size(kSchemes));
  return *ir::QuantScheme::Parse(draw.OneOf(schemes));
}

void DrawTypes(Draw& draw, ir::KernelSpec& spec) {
  spec.x = draw.OneOf(kFloats);
  spec.w = draw.OneIn(3) ? draw.OneOf(kFloats) : spec.x;
  spec.y = draw.OneIn(3) ? draw.OneOf(kFloats) : spec.x;
  if (spec.contraction == Contraction::kInteger) {
    spec.x = draw.OneIn(2) ? DType::kInt8 : DType::kUInt8;
    spec.w = DType::kInt8;
    spec.interleave = 4;
    spec.requantize = draw.OneIn(2);
    spec.y = spec.requantize ? spec.x : DType::kFloat32;
  }
  if (spec.contraction == Contraction::kWeightOnly || spec.contraction == Contraction::kRowInt8) {
    spec.scheme = RandomScheme(draw, spec.contraction == Contraction::kRowInt8);
    spec.w = spec.scheme->CodeDType();
    spec.interleave = ir::CodeInterleave(spec.contraction, *spec.scheme);
  }
}

void DrawSizes(Draw& draw, Effort effort, ir::KernelSpec& spec) {
  const bool depthwise = spec.contraction == Contraction::kDepthwise;
  const bool floats = depthwise || spec.contraction == Contraction::kFloat;
  spec.n = draw.Size(100);
  spec.k = depthwise ? 1 : draw.Size(700);
  // A long row of full-range codes is where int32 sums overflow.
  if (!floats && draw.OneIn(40)) spec.k = 66'000 + draw.Between(0, 9);
  if (floats && draw.OneIn(depthwise ? 2 : 3)) {
    spec.access = ir::Access::kIndirect;
    spec.taps = draw.OneIn(3) ? draw.OneOf(std::array{4, 9, 25}) : draw.Between(1, 12);
    if (!depthwise) spec.k = draw.Size(100);
  }
  spec.n = std::min(spec.n, std::max<int64_t>(1, effort.products / std::max<int64_t>(1, spec.depth())));
  if (spec.gated()) spec.n += spec.n % 2;
}

}  // namespace

ir::KernelSpec RandomSpec(const Target& target, Effort effort, std::mt19937_64& random) {
  Draw draw(random);
  constexpr std::array kKinds = {Contraction::kFloat,   Contraction::kFloat,      Contraction::kFloat,
                                 Contraction::kFloat,   Contraction::kDepthwise,  Contraction::kInteger,
                                 Contraction::kInteger, Contraction::kWeightOnly, Contraction::kRowInt8};
  ir::KernelSpec spec;
  spec.contraction = draw.OneOf(kKinds);
  do {
    spec.activation = draw.OneIn(3) ? ir::Activation::kNone : draw.OneOf(ir::AllActivations());
  } while (spec.gated() && spec.contraction == Contraction::kDepthwise);
  if (!spec.gated() && draw.OneIn(2)) spec.bias = ir::BiasKind::kFloat32;
  DrawTypes(draw, spec);
  DrawSizes(draw, effort, spec);
  // The oracle looks through all columns for each group of an act-ordered row.
  if (spec.scheme.has_value() && spec.k > 0 && spec.k < 200 && draw.OneIn(3)) {
    spec.order = draw.OneIn(2) ? ir::InputOrder::kSorted : ir::InputOrder::kUneven;
  }
  return draw.OneOf(Variants(spec, target));
}

Case WithRandomRun(Case c, Effort effort, std::mt19937_64& random) {
  Draw draw(random);
  c.rows = draw.OneIn(8) ? draw.Size(150) : draw.Size(40);
  const int64_t row_cost = std::max<int64_t>(1, c.spec.n * c.spec.depth());
  c.rows = std::min(c.rows, std::max<int64_t>(1, effort.products / row_cost));
  c.values = draw.OneIn(3) ? Values::kExtreme : Values::kOrdinary;
  c.seed = static_cast<uint64_t>(draw.Between(0, 999'999));
  const int64_t panels = ir::LayoutOf(c.spec).Panels();
  c.tile_rows = draw.OneIn(2) ? std::max<int64_t>(1, c.rows) : draw.Between(1, std::max<int64_t>(1, c.rows));
  c.tile_panels = draw.OneIn(2) ? std::max<int64_t>(1, panels) : draw.Between(1, std::max<int64_t>(1, panels));
  c.edge = draw.OneIn(2) ? GuardedBuffer::Edge::kStart : GuardedBuffer::Edge::kEnd;
  return c;
}

}  // namespace clikart::codegen
