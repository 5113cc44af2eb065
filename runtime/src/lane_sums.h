// Sums over packed int8 weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clikart/ir/panel_layout.h"

namespace clikart {

// The sum of each lane's codes in one panel (int8, interleave 4), exact.
void SumLanes(const ir::PanelLayout& layout, const std::byte* panel, int64_t* sums);

}  // namespace clikart
