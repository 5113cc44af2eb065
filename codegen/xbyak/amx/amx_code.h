// The AMX backend: products of matrix tiles, and AVX-512 for all that is done to their accumulators and to codes that
// become tiles.
#pragma once

#include <cstdint>
#include <span>

#include "../avx512/avx512_code.h"
#include "clikart/ir/kernel_spec.h"
#include "tile_driver.h"

namespace clikart::codegen {

class AmxCode final : public Avx512Code {
 public:
  using Avx512Code::Avx512Code;

  // Each assembles one entry of tile_driver.h and answers its offset.
  int32_t Configure();
  int32_t Release();
  int32_t Product(const ir::KernelSpec& spec, int row_tiles, int panels, TileAhead ahead);
  // Of code_tile_driver.h.
  int32_t PairCodes(const CodeFormat& format);
  int32_t AddTileGroup(const ir::QuantScheme& scheme);
  // Of row_int8_tile_driver.h.
  int32_t UnpackTiles(const ir::KernelSpec& spec);
  int32_t AddTileSums(const ir::KernelSpec& spec);

 private:
  // c += a * b, as the types of `spec` have it.
  void Multiply(const ir::KernelSpec& spec, const Xbyak::Tmm& c, const Xbyak::Tmm& a, const Xbyak::Tmm& b);
};

}  // namespace clikart::codegen
