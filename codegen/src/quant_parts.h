// Where a problem's weight rows and their inputs belong.
#pragma once

#include <utility>

#include "quant_testing.h"

namespace clikart::codegen {

inline int64_t Groups(const ir::KernelSpec& spec) { return spec.scheme ? spec.scheme->GroupCount(spec.k) : 0; }

// A weight row's part and row in it.
inline std::pair<const QuantPart*, int64_t> Locate(const QuantProblem& problem, int64_t n) {
  for (const QuantPart& part : problem.parts) {
    if (n < part.rows) return {&part, n};
    n -= part.rows;
  }
  return {nullptr, 0};
}

inline int64_t GroupOf(const ir::KernelSpec& spec, const QuantPart& part, int64_t k) {
  if (!part.g_idx.empty()) return part.g_idx[static_cast<size_t>(k)];
  return spec.scheme->group_size == -1 ? 0 : k / spec.scheme->group_size;
}

}  // namespace clikart::codegen
