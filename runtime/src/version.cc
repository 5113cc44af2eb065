#include "clikart/runtime.h"

namespace clikart {

std::string_view Version() { return CLIKART_VERSION; }

}  // namespace clikart
