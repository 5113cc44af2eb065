#include "clikart/codegen/driver.h"

#include "code_driver.h"
#include "code_tile_driver.h"
#include "depthwise_driver.h"
#include "panel_driver.h"
#include "row_int8_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

std::span<const Driver> Drivers() {
  static constexpr Driver drivers[] = {
      {"panels", &RunPanels}, {"depthwise", &RunDepthwise}, {"tiles", &RunTiles},
      {"codes", &RunCodes},   {"row_int8", &RunRowInt8},   {"code_tiles", &RunCodeTiles}};
  return drivers;
}

}  // namespace clikart::codegen
