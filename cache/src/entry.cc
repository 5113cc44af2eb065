#include "clikart/cache/entry.h"

#include "sha256.h"

namespace clikart::cache {

std::string Key::Name() const {
  // No field holds a line break (see Validate), so different keys are different texts.
  std::string text = "clikart-kernel\n";
  for (const std::string* field : {&signature, &features, &emitter, &build}) text.append(*field).append("\n");
  return Hex(Sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

}  // namespace clikart::cache
