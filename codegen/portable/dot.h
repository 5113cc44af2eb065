// Exact sums of products of small integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clikart::codegen::portable {

// a[0] * b[0] + ... + a[n-1] * b[n-1], exact for values within [-255, 255] and any n.
int64_t Dot(const int16_t* a, const int16_t* b, int64_t n);

// sums[lane] += x times the lane's codes, over `steps` steps of four in a panel of packed int8 weights (sixteen
// lanes, interleave 4). Exact for |x| up to 383.
void DotPanel(const std::byte* panel, const int16_t* x, int64_t steps, int64_t* sums);

}  // namespace clikart::codegen::portable
