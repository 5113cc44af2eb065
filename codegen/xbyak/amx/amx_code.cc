#include "amx_code.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "row_int8_tile_driver.h"

namespace clikart::codegen {

using Xbyak::Tmm;

int32_t AmxCode::Configure() {
  const int32_t entry = Begin();
  ldtilecfg(Argument(0));
  Return();
  return entry;
}

int32_t AmxCode::Release() {
  const int32_t entry = Begin();
  tilerelease();
  Return();
  return entry;
}

namespace {

// Rows of a panel's tile: dwords of depth of a row's.
int DepthOf(const ir::KernelSpec& spec) {
  return static_cast<int>(spec.product == ir::Product::kTileInt8 ? TileSteps(spec) : kTileRows);
}

}  // namespace

void AmxCode::Multiply(const ir::KernelSpec& spec, const Tmm& c, const Tmm& a, const Tmm& b) {
  switch (spec.product) {
    case ir::Product::kTileBf16:
      return tdpbf16ps(c, a, b);
    case ir::Product::kTileF16:
      return tdpfp16ps(c, a, b);
    case ir::Product::kTileInt8:
      return tdpbsud(c, a, b);
    default:
      return tdpbusd(c, a, b);  // QLinear, whose codes of x are staged unsigned
  }
}

int32_t AmxCode::Product(const ir::KernelSpec& spec, int row_tiles, int panels, TileAhead ahead) {
  const int32_t entry = Begin();
  const auto accumulator = [](int row_tile, int panel) { return Tmm(TileAccumulator(row_tile, panel)); };

  const Reg64 blocks = TakePointer();
  const Reg64 line = TakePointer();  // bytes between the rows of a panel's tiles and of accumulators
  const Reg64 a_stride = TakePointer();
  const Reg64 a0 = TakePointer();
  const Reg64 a1 = row_tiles > 1 ? TakePointer() : a0;
  const Reg64 b0 = TakePointer();
  const Reg64 b1 = panels > 1 ? TakePointer() : b0;
  const Reg64 next = TakePointer();
  const bool asks = ahead != TileAhead::kNone;
  const Reg64 a[] = {a0, a1}, b[] = {b0, b1};
  const int depth = DepthOf(spec);
  const auto line_bytes = static_cast<int>(kTileRowBytes);

  // Applies `move` to each accumulator and its place in memory.
  const auto each_accumulator = [&](const auto& move) {
    for (int panel = 0; panel < panels; ++panel) {
      mov(next, Argument(offsetof(TileProductArgs, c)));
      if (panel > 0) add(next, Argument(offsetof(TileProductArgs, c_stride)));
      for (int tile = 0; tile < row_tiles; ++tile) {
        if (tile > 0) add(next, Argument(offsetof(TileProductArgs, c_tile_stride)));
        move(accumulator(tile, panel), ptr[next + line]);
      }
    }
  };
  const auto multiply = [&] {
    for (int panel = 0; panel < panels; ++panel) {
      tileloadd(Tmm(TileOfPanel(panel)), ptr[b[panel] + line]);
      for (int tile = 0; tile < row_tiles; ++tile) {
        if (panel == 0) tileloadd(Tmm(TileOfRows(tile)), ptr[a[tile] + a_stride]);
        Multiply(spec, accumulator(tile, panel), Tmm(TileOfRows(tile)), Tmm(TileOfPanel(panel)));
      }
    }
  };

  const auto ask = [&](const RegExp& at) {
    // What other row tiles pass first would push what they multiply now out of the first level.
    if (ahead == TileAhead::kStream) {
      prefetcht0(ptr[at]);
    } else {
      prefetcht1(ptr[at]);
    }
  };

  Label fresh, ready, block, whole, done;
  mov(line, kTileRowBytes);
  cmp(qword[rdi + offsetof(TileProductArgs, resume)], 0);
  je(fresh, T_NEAR);
  each_accumulator([&](const Tmm& tile, const Address& place) { tileloadd(tile, place); });
  jmp(ready, T_NEAR);
  L(fresh);
  for (int tile = 0; tile < row_tiles; ++tile) {
    for (int panel = 0; panel < panels; ++panel) tilezero(accumulator(tile, panel));
  }
  L(ready);

  mov(a0, Argument(offsetof(TileProductArgs, a)));
  mov(a_stride, Argument(offsetof(TileProductArgs, a_stride)));
  if (row_tiles > 1) {
    mov(a1, a0);
    add(a1, Argument(offsetof(TileProductArgs, a_tile_stride)));
  }
  mov(b0, Argument(offsetof(TileProductArgs, b)));
  if (panels > 1) {
    mov(b1, b0);
    add(b1, Argument(offsetof(TileProductArgs, b_stride)));
  }
  mov(next, Argument(offsetof(TileProductArgs, prefetch)));
  mov(blocks, Argument(offsetof(TileProductArgs, blocks)));
  test(blocks, blocks);
  jz(whole, T_NEAR);
  align(32);
  L(block);
  const size_t block_at = getSize();
  multiply();
  for (int panel = 0; asks && panel < panels; ++panel) {
    if (panel > 0) add(next, Argument(offsetof(TileProductArgs, b_stride)));
    for (int i = 0; i < TileLinesAhead(ahead, depth); ++i) ask(next + i * line_bytes);
  }
  if (asks && panels > 1) sub(next, Argument(offsetof(TileProductArgs, b_stride)));
  if (asks) add(next, Argument(offsetof(TileProductArgs, prefetch_step)));
  for (int tile = 0; tile < row_tiles; ++tile) add(a[tile], depth * 4);
  for (int panel = 0; panel < panels; ++panel) add(b[panel], depth * line_bytes);
  dec(blocks);
  jnz(block, T_NEAR);
  EndLoop(absl::StrCat("tile ", row_tiles, "x", panels, ahead == TileAhead::kStream ? " stream" : ""), block_at,
          row_tiles * panels);

  L(whole);
  mov(b0, Argument(offsetof(TileProductArgs, b_tail)));
  test(b0, b0);
  jz(done, T_NEAR);
  if (panels > 1) lea(b1, ptr[b0 + kTileBytes]);
  multiply();
  L(done);
  each_accumulator([&](const Tmm& tile, const Address& place) { tilestored(place, tile); });
  Return();
  return entry;
}

}  // namespace clikart::codegen
