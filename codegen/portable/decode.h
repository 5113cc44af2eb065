// Decoding of contiguous columns by vectors; the scalar way is WeightReader::ForCodes.
#pragma once

#include <cstdint>

#include "tile.h"

namespace clikart::codegen::portable {

// How a scheme's codes become floats, before the zero point.
struct CodeTable {
  int bits = 8;
  bool is_integer = true;         // the code is its own value
  bool is_signed = false;         // 8-bit integers only
  const float* values = nullptr;  // by code
};

// Up to kLanes weight rows of one group.
struct LaneCodes {
  int64_t count = 0;
  const uint8_t* rows[kLanes] = {};  // of column 0
  float zero_points[kLanes] = {};
};

// Writes value - zero point of columns begin, begin + 1, ... as [column - begin, lane], lanes past the count
// as 0, in steps of eight while they stay below `end`. Answers the first column it left: `begin` where a nibble
// would be split.
int64_t DecodeEightsAvx2(const CodeTable& table, const LaneCodes& lanes, int64_t begin, int64_t end, float* to);

}  // namespace clikart::codegen::portable
