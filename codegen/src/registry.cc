#include <array>

#include "../portable/portable_emitter.h"
#include "../xbyak/xbyak_emitter.h"
#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

std::span<const Emitter* const> Emitters() {
  static const std::array<const Emitter*, 2> emitters = {&XbyakEmitter(), &PortableEmitter()};
  return emitters;
}

const Emitter* FindEmitter(std::string_view name) {
  for (const Emitter* emitter : Emitters()) {
    if (emitter->name() == name) return emitter;
  }
  return nullptr;
}

}  // namespace clikart::codegen
