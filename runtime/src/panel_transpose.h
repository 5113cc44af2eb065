// The inner blocks of packing: sixteen weight rows against a few k steps of a panel, in registers.
// SSE2 alone, which every x86-64 has.
#pragma once

#include <emmintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "clikart/ir/panel_layout.h"

namespace clikart {

// One address for each lane of a panel; null where the lane has no row (zeros are packed, nothing is
// unpacked).
template <typename Byte>
using LaneRows = std::array<Byte*, ir::kPanelLanes>;

namespace transpose {

// A square of registers. (A std::array of them would drop the attributes of their type.)
template <size_t kSize>
struct Rows {
  __m128i row[kSize];
  __m128i& operator[](size_t i) { return row[i]; }
};

inline __m128i Load(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m128i LoadOrZero(const std::byte* from) { return from == nullptr ? _mm_setzero_si128() : Load(from); }
inline void Store(std::byte* to, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

// Four rows of four 32-bit elements become four columns.
inline void Square(Rows<4>& m) {
  const __m128i a = _mm_unpacklo_epi32(m[0], m[1]), b = _mm_unpackhi_epi32(m[0], m[1]);
  const __m128i c = _mm_unpacklo_epi32(m[2], m[3]), d = _mm_unpackhi_epi32(m[2], m[3]);
  m = {{_mm_unpacklo_epi64(a, c), _mm_unpackhi_epi64(a, c), _mm_unpacklo_epi64(b, d), _mm_unpackhi_epi64(b, d)}};
}

// Eight rows of eight 16-bit elements become eight columns.
inline void Square(Rows<8>& m) {
  Rows<4> low, high;  // columns 0..3 and 4..7; a pair of rows makes 32-bit elements
  for (size_t i = 0; i < 4; ++i) {
    low[i] = _mm_unpacklo_epi16(m[2 * i], m[2 * i + 1]);
    high[i] = _mm_unpackhi_epi16(m[2 * i], m[2 * i + 1]);
  }
  Square(low);
  Square(high);
  m = {{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}};
}

}  // namespace transpose

// Packs or unpacks kSteps packed steps from the rows' elements at `at` bytes. Dwords: a lane has four bytes of
// its row in each step, whatever they are.
struct Dwords {
  // A cache line of a row is read at once: rows are often a power of two apart, and sixteen lines that
  // wait for their next quarter would throw each other out of L1.
  static constexpr int64_t kSteps = 16, kStepBytes = 64;

  static void Pack(const LaneRows<const std::byte>& rows, int64_t at, std::byte* panel) {
    for (size_t lane = 0; lane < 16; lane += 4) {
      for (int64_t k = 0; k < kSteps; k += 4) {
        transpose::Rows<4> block;
        for (size_t i = 0; i < 4; ++i) {
          const std::byte* row = rows[lane + i];
          block[i] = transpose::LoadOrZero(row == nullptr ? nullptr : row + at + k * 4);
        }
        transpose::Square(block);
        for (size_t i = 0; i < 4; ++i) {
          transpose::Store(panel + (k + static_cast<int64_t>(i)) * kStepBytes + lane * 4, block[i]);
        }
      }
    }
  }

  static void Unpack(const std::byte* panel, const LaneRows<std::byte>& rows, int64_t at) {
    for (size_t lane = 0; lane < 16; lane += 4) {
      for (int64_t k = 0; k < kSteps; k += 4) {
        transpose::Rows<4> block;
        for (size_t i = 0; i < 4; ++i) {
          block[i] = transpose::Load(panel + (k + static_cast<int64_t>(i)) * kStepBytes + lane * 4);
        }
        transpose::Square(block);
        for (size_t i = 0; i < 4; ++i) {
          if (rows[lane + i] != nullptr) transpose::Store(rows[lane + i] + at + k * 4, block[i]);
        }
      }
    }
  }
};

// Two bytes of its row a lane and step.
struct Words {
  static constexpr int64_t kSteps = 8, kStepBytes = 32;
  using Half = transpose::Rows<8>;

  static void Pack(const LaneRows<const std::byte>& rows, int64_t at, std::byte* panel) {
    for (size_t half = 0; half < 2; ++half) {
      Half block;
      for (size_t lane = 0; lane < 8; ++lane) {
        const std::byte* row = rows[half * 8 + lane];
        block[lane] = transpose::LoadOrZero(row == nullptr ? nullptr : row + at);
      }
      transpose::Square(block);
      for (size_t k = 0; k < 8; ++k) transpose::Store(panel + k * kStepBytes + half * 16, block[k]);
    }
  }

  static void Unpack(const std::byte* panel, const LaneRows<std::byte>& rows, int64_t at) {
    for (size_t half = 0; half < 2; ++half) {
      Half block;
      for (size_t k = 0; k < 8; ++k) block[k] = transpose::Load(panel + k * kStepBytes + half * 16);
      transpose::Square(block);
      for (size_t lane = 0; lane < 8; ++lane) {
        std::byte* const row = rows[half * 8 + lane];
        if (row != nullptr) transpose::Store(row + at, block[lane]);
      }
    }
  }
};

}  // namespace clikart
