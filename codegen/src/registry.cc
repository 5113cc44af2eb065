#include <array>

#include "../llvm/llvm_emitter.h"
#include "../portable/portable_emitter.h"
#include "../xbyak/xbyak_emitter.h"
#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

std::span<const Emitter* const> Emitters() {
  static const std::array<const Emitter*, 3> emitters = {&XbyakEmitter(), &LlvmEmitter(), &PortableEmitter()};
  return emitters;
}

const Emitter* FindEmitter(std::string_view name) {
  for (const Emitter* emitter : Emitters()) {
    if (emitter->name() == name) return emitter;
  }
  return nullptr;
}

}  // namespace clikart::codegen
