// The register kernel of depthwise contractions: each lane a channel, each row a chain of its own.

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "depthwise_driver.h"
#include "kernel_code.h"

namespace clikart::codegen {
namespace {

constexpr int kRows = kDepthwiseRows;
constexpr int kAddress = sizeof(const std::byte*);

}  // namespace

int32_t KernelCode::Depthwise(ir::DType x, const Packing& weights, int used) {
  constexpr int kPanel = static_cast<int>(ir::kPanelLanes);
  const int panels = (used + kPanel - 1) / kPanel;
  const int32_t entry = Begin();
  const int element = static_cast<int>(ir::SizeOf(x));
  const int vector_bytes = lanes() * static_cast<int>(sizeof(float));
  const int parts = (used + lanes() - 1) / lanes();  // vectors of the panels
  const int panel_parts = kPanel / lanes();
  const auto lanes_of = [&](int part) { return std::min(lanes(), used - part * lanes()); };

  const Reg64 table = TakePointer();
  const Reg64 b = TakePointer();
  const Reg64 channel = TakePointer();
  const Reg64 c = TakePointer();
  const Reg64 next_weights = TakePointer();  // bytes from one panel's weights to the next one's
  const Reg64 rows_in_turn[] = {TakePointer(), TakePointer(), TakePointer()};
  const Reg64 c_row = rows_in_turn[0];  // after the taps
  const int first_accumulator = TakeVectors(kRows * parts);
  const auto accumulator = [&](int row, int part) { return Register(first_accumulator + row * parts + part); };
  const int first_weight = TakeVectors(parts);
  const auto weight = [&](int part) { return Register(first_weight + part); };
  const Vector value = TakeVector();
  const Vector mask = TakeVector();

  if (used % lanes() != 0) PrepareFirst(used % lanes(), mask, value);
  mov(b, Argument(offsetof(DepthwiseArgs, weights)));
  mov(c, Argument(offsetof(DepthwiseArgs, c)));
  mov(channel, Argument(offsetof(DepthwiseArgs, first_channel)));
  if (panels > 1) mov(next_weights, Argument(offsetof(DepthwiseArgs, weights_stride)));
  Label panel, tap, finish;
  L(panel);
  mov(table, Argument(offsetof(DepthwiseArgs, taps)));
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < parts; ++part) {
      vxorps(accumulator(row, part), accumulator(row, part), accumulator(row, part));
    }
  }
  cmp(table, Argument(offsetof(DepthwiseArgs, end)));
  jae(finish, T_NEAR);
  align(32);
  L(tap);
  const size_t tap_at = getSize();
  for (int part = 0; part < parts; ++part) {
    const RegExp from = part < panel_parts ? RegExp(b) : b + next_weights;
    Decode(weights, from, 0, part % panel_parts, weight(part), value);
  }
  for (int row = 0; row < kRows; ++row) {
    const Reg64 from = rows_in_turn[row % 3];
    mov(from, ptr[table + row * kAddress]);
    for (int part = 0; part < parts; ++part) {
      const RegExp at = from + channel + part * lanes() * element;
      if (x == ir::DType::kFloat32 && lanes_of(part) == lanes()) {
        vfmadd231ps(accumulator(row, part), weight(part), ptr[at]);
      } else {
        LoadFirst(x, value, at, lanes_of(part), mask);
        vfmadd231ps(accumulator(row, part), weight(part), value);
      }
    }
  }
  add(b, weights.DepthBytes());
  add(table, kRows * kAddress);
  cmp(table, Argument(offsetof(DepthwiseArgs, end)));
  jb(tap, T_NEAR);
  EndLoop(absl::StrCat("depthwise ", used, " lanes"), tap_at, kRows * parts);
  L(finish);
  mov(c_row, c);
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < parts; ++part) vmovups(ptr[c_row + part * vector_bytes], accumulator(row, part));
    add(c_row, Argument(offsetof(DepthwiseArgs, c_stride)));
  }
  if (panels > 1) add(b, next_weights);
  add(c, panels * static_cast<int>(kAccumulatorRow));
  add(channel, panels * kPanel * element);
  cmp(channel, Argument(offsetof(DepthwiseArgs, channel_end)));
  jl(panel, T_NEAR);
  Return();
  return entry;
}

}  // namespace clikart::codegen
