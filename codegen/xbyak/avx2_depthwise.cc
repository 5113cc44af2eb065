// The register kernel of depthwise contractions: each lane a channel, each row a chain of its own.

#include <cstddef>

#include "avx2_code.h"
#include "clikart/ir/panel_layout.h"
#include "depthwise_driver.h"

namespace clikart::codegen {
namespace {

constexpr int kHalf = 8;  // lanes of a vector
constexpr int kVectorBytes = 32;
constexpr int kRows = kDepthwiseRows;
constexpr int kAddress = sizeof(const std::byte*);

}  // namespace

void Avx2Code::FirstLanes(const Ymm& mask, const Ymm& spare, int lanes) {
  const Xbyak::Xmm low(mask.getIdx()), rest(spare.getIdx());
  constexpr int kQuarter = 4, kBytes = 16;
  vpcmpeqd(low, low, low);
  if (lanes < kQuarter) {
    vpsrldq(low, low, kBytes - 4 * lanes);
  } else if (lanes > kQuarter) {
    vpsrldq(rest, low, kBytes - 4 * (lanes - kQuarter));
    vinserti128(mask, mask, rest, 1);
  }
}

void Avx2Code::LoadFirst(ir::DType dtype, const Ymm& to, const RegExp& from, int lanes, const Ymm& mask) {
  if (lanes == kHalf) return LoadEight(dtype, to, from);
  if (dtype == ir::DType::kFloat32) {
    vmaskmovps(to, mask, ptr[from]);
    return;
  }
  // Pieces of four, two and one 16-bit elements.
  const Xbyak::Xmm x(to.getIdx());
  if (lanes >= 4) {
    vmovq(x, ptr[from]);
    if ((lanes & 2) != 0) vpinsrd(x, x, ptr[from + 8], 2);
  } else if (lanes >= 2) {
    vmovd(x, ptr[from]);
  } else {
    vpxor(x, x, x);
  }
  if ((lanes & 1) != 0) vpinsrw(x, x, ptr[from + 2 * (lanes - 1)], static_cast<uint8_t>(lanes - 1));
  if (dtype == ir::DType::kFloat16) {
    vcvtph2ps(to, x);
  } else {
    vpmovzxwd(to, x);
    vpslld(to, to, 16);
  }
}

int32_t Avx2Code::Depthwise(ir::DType x, ir::DType weights, int lanes) {
  const int32_t entry = Begin();
  const int element = static_cast<int>(ir::SizeOf(x));
  const int halves = lanes > kHalf ? 2 : 1;
  const auto lanes_of = [&](int half) { return half + 1 < halves ? kHalf : lanes - half * kHalf; };
  const bool masked = x == ir::DType::kFloat32 && lanes % kHalf != 0;

  const Reg64 table = TakePointer();
  const Reg64 b = TakePointer();
  const Reg64 channel = TakePointer();
  const Reg64 c = TakePointer();
  const Reg64 c_row = TakePointer();
  const Reg64 rows_in_turn[] = {TakePointer(), TakePointer(), TakePointer()};
  const int first_accumulator = vectors_taken_;
  for (int i = 0; i < kRows * halves; ++i) TakeVector();
  const auto accumulator = [&](int row, int half) { return Ymm(first_accumulator + row * halves + half); };
  const Ymm w[] = {TakeVector(), TakeVector()};
  const Ymm value = TakeVector();
  const Ymm mask = TakeVector();
  const Packing packing{weights, 1};

  if (masked) FirstLanes(mask, value, lanes % kHalf);
  mov(b, Argument(offsetof(DepthwiseArgs, weights)));
  mov(c, Argument(offsetof(DepthwiseArgs, c)));
  mov(channel, Argument(offsetof(DepthwiseArgs, first_channel)));
  Label panel, tap, finish;
  L(panel);
  mov(table, Argument(offsetof(DepthwiseArgs, taps)));
  for (int row = 0; row < kRows; ++row) {
    for (int half = 0; half < halves; ++half) {
      vxorps(accumulator(row, half), accumulator(row, half), accumulator(row, half));
    }
  }
  cmp(table, Argument(offsetof(DepthwiseArgs, end)));
  jae(finish, T_NEAR);
  align(32);
  L(tap);
  DecodeStep(packing, b, 0, w[0], w[1], value);
  for (int row = 0; row < kRows; ++row) {
    const Reg64 from = rows_in_turn[row % 3];
    mov(from, ptr[table + row * kAddress]);
    for (int half = 0; half < halves; ++half) {
      const RegExp at = from + channel + half * kHalf * element;
      if (x == ir::DType::kFloat32 && lanes_of(half) == kHalf) {
        vfmadd231ps(accumulator(row, half), w[half], ptr[at]);
      } else {
        LoadFirst(x, value, at, lanes_of(half), mask);
        vfmadd231ps(accumulator(row, half), w[half], value);
      }
    }
  }
  add(b, packing.DepthBytes());
  add(table, kRows * kAddress);
  cmp(table, Argument(offsetof(DepthwiseArgs, end)));
  jb(tap, T_NEAR);
  L(finish);
  mov(c_row, c);
  for (int row = 0; row < kRows; ++row) {
    for (int half = 0; half < halves; ++half) vmovups(ptr[c_row + half * kVectorBytes], accumulator(row, half));
    add(c_row, Argument(offsetof(DepthwiseArgs, c_stride)));
  }
  add(c, static_cast<int>(kAccumulatorRow));
  add(channel, static_cast<int>(ir::kPanelLanes) * element);
  cmp(channel, Argument(offsetof(DepthwiseArgs, channel_end)));
  jl(panel, T_NEAR);
  Return();
  return entry;
}

}  // namespace clikart::codegen
