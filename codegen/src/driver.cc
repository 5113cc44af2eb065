#include "clikart/codegen/driver.h"

#include "depthwise_driver.h"
#include "panel_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {

std::span<const Driver> Drivers() {
  static constexpr Driver drivers[] = {{"panels", &RunPanels}, {"depthwise", &RunDepthwise}, {"tiles", &RunTiles}};
  return drivers;
}

}  // namespace clikart::codegen
