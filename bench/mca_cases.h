// What clikart-mca looks at when nobody says.
#pragma once

#include <optional>
#include <vector>

#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::bench {

// What the main loops of a kernel are to reach.
struct McaGoals {
  std::optional<double> share;     // percent of the limit
  std::optional<double> products;  // tile products for each tile load
};

struct McaCase {
  ir::KernelSpec spec;
  codegen::IsaLevel level;
  McaGoals goals;
};

std::vector<McaCase> McaCases();

// Lets a case's spec multiply as layers do on that target.
void SuitTarget(ir::KernelSpec& spec, const codegen::Target& target);

}  // namespace clikart::bench
