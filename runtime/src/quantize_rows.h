// Rows to codes, as many at a time as a vector has lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "clikart/ir/quant_scheme.h"
#include "clikart/nn.h"
#include "quantize_group.h"

namespace clikart {

// A group as a row keeps it.
struct GroupCodes {
  double scale = 0;  // as stored
  double minimum = 0;
  uint8_t zero = 0;
  bool reached = false;  // false: the scale type does not reach the group's weights
};

// What the rows of a weight are quantized by.
struct RowRules {
  GridRules grid;
  AnyRounding rounding;
  ScaleSearch search;
  bool minimum;
  int64_t depth;
  int64_t group_size;  // at least 1
  int64_t groups;
  std::vector<double> importance;  // of each input, or empty

  int64_t ScratchBytes(int rows) const;
};

// `importance` may be empty: 1. `global_scale` multiplies every stored scale; 1 where the scheme has none.
RowRules RowRulesOf(const ir::QuantScheme& scheme, ScaleSearch search, int64_t depth, std::span<const float> importance,
                    float global_scale);

// The codes of kernel.rows rows of finite weights.
struct RowBlock {
  const float* weights;  // [rows, depth]
  uint8_t* codes;        // [rows, depth], one a byte
  GroupCodes* groups;    // [rows, groups]
  std::byte* scratch;    // rules.ScratchBytes(rows), 64-byte aligned
};

// All of them give the same bits.
struct RowKernel {
  const char* name;
  int rows;
  void (*quantize)(const RowRules& rules, const RowBlock& block);
};

// Those that this CPU runs, the fastest last; CLIKART_MAX_ISA caps them.
std::span<const RowKernel> RowKernels();

// The global scale with which the group of the greatest weight, `peak`, gets the greatest scale that can be
// stored. It is at least 2^-117, so that its product with any stored scale is normal.
float GlobalScaleFor(const ir::QuantScheme& scheme, float peak);

}  // namespace clikart
