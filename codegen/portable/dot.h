// Exact sums of products of small integers.
#pragma once

#include <cstdint>

namespace clikart::codegen::portable {

// a[0] * b[0] + ... + a[n-1] * b[n-1], exact for values within [-255, 255] and any n.
int64_t Dot(const int16_t* a, const int16_t* b, int64_t n);

}  // namespace clikart::codegen::portable
