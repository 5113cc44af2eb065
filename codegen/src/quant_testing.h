// For tests of quantized kernels: problems in values, run with every buffer between guard pages, and
// two references: rule 3 and rule 6 word by word, and the plain formula in double precision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clikart/codegen/driver.h"
#include "clikart/codegen/kernel.h"
#include "kernel_testing.h"

namespace clikart::codegen {

// One part's weight; every array is row by row.
struct QuantPart {
  int64_t rows = 0;
  std::vector<uint8_t> codes;        // [rows, k], one code each, signed ones as their bits
  std::vector<uint32_t> scales;      // [rows, groups], as stored
  std::vector<uint32_t> minimums;    // likewise, or empty
  std::vector<uint8_t> zero_points;  // [rows, groups] or empty
  std::vector<int32_t> g_idx;        // [k] or empty
  float global_scale = 1.0f;
};

struct QuantProblem {
  ir::KernelSpec spec;
  int64_t rows = 0;
  std::vector<float> x;  // [rows, k]; kInteger: whole numbers
  std::vector<QuantPart> parts;
  std::vector<float> bias;  // [n], empty without one
  // kInteger only
  std::vector<float> weight_scale;  // [n]
  float input_scale = 1.0f, output_scale = 1.0f;
  int32_t input_zero_point = 0, output_zero_point = 0;
};

// A kernel of f32 inputs and outputs over weights of that scheme, packed as the contraction wants them.
ir::KernelSpec SchemeSpec(ir::Contraction contraction, std::string_view scheme, int64_t n, int64_t k);

// QLinear's kernel with f32 outputs, and the same with outputs of x's type.
ir::KernelSpec IntegerSpec(ir::DType x, int64_t n, int64_t k);
ir::KernelSpec Requantized(ir::KernelSpec spec);

// For tests over all that weight-only kernels decode: every width and codebook, every type of scale, groups that are
// whole runs of codes and groups that end within one.
inline constexpr const char* kWeightOnlySchemes[] = {
    "int8",    "int8_g32",     "int8_g5_asym",   "int8_asym_bf16",   "int8_g16_min_f32",
    "int4",    "int4_g32_f32", "int4_g128_asym", "int4_g7_asym_f32", "int4_g32_min",
    "int2",    "int2_g8",      "int2_g12_asym",  "int2_g32_asym",    "nf4_g8",
    "nf4_g64", "fp4_g16_bf16", "fp8_e4m3",       "fp8_e5m2_g12",     "fp8_e4m3_g16_e8m0",
    "mxfp4",   "nvfp4"};

// The stored bits of a scale; exact values only.
uint32_t ScaleBits(ir::ScaleType type, float scale);

// A part of random codes, zero points and scales between 0.25 and 2 (of either sign where the type
// has one).
QuantPart RandomPart(const ir::KernelSpec& spec, int64_t rows, uint64_t seed);
// Random x, parts of the given sizes and, where the spec wants one, a bias.
QuantProblem RandomQuantProblem(const ir::KernelSpec& spec, int64_t rows, std::vector<int64_t> part_rows,
                                uint64_t seed);

// Swaps some of the values for ones that try the arithmetic: inputs that are zero, subnormal, huge or not
// finite, scales of any bits, zero points at the ends of their range, codes that are all one extreme.
void MakeExtreme(QuantProblem& problem, uint64_t seed);

struct QuantLaunch {
  const EmittedKernel* kernel = nullptr;  // null: the portable emitter's for the baseline
  GuardedBuffer::Edge edge = GuardedBuffer::Edge::kEnd;
  int64_t tile_rows = 1000, tile_panels = 1000;
  std::string* stray_write = nullptr;  // as in RunGuarded
  void (*prepare)(const KernelImage& kernel, const PrepareArgs& args) = &PrepareRows;
};
// [rows, outputs] as float.
std::vector<float> RunQuant(const QuantProblem& problem, const QuantLaunch& launch = {});

// Rule 3 or 6, word by word: [rows, n] sums before bias and activation (kInteger: with the bias).
std::vector<float> Contract(const QuantProblem& problem);
// Bias, activation and the one rounding for sums like Contract's: [rows, outputs].
std::vector<float> Finish(const QuantProblem& problem, std::span<const float> sums);
// Both.
std::vector<float> WordByWord(const QuantProblem& problem);
// kWeightOnly: index of the first of such sums that is further from the exact one than rule 5 allows, or -1.
int64_t FirstBeyondBound(const QuantProblem& problem, std::span<const float> sums);

// x times scale * (code - zero point), without bias and activation, in double; and the sum of magnitudes.
struct DoubleResult {
  std::vector<double> y, magnitude;  // [rows, n]
};
DoubleResult InDouble(const QuantProblem& problem);

}  // namespace clikart::codegen
