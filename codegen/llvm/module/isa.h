// What an instruction set means for the shape of generated IR.
#pragma once

#include <cstdint>
#include <string>

namespace clikart::codegen::llvm_module {

struct Isa {
  std::string features;  // as LLVM's subtargets take them; never the host's CPU name
  int lanes = 4;         // 32-bit lanes of a vector register
  bool fma = false;
  bool f16c = false;
  bool dot = false;    // of codes: vpdpbusd
  bool masks = false;  // loads and stores of any number of lanes, whatever their type
};

// `features`: bit i for Feature i.
Isa IsaOf(uint32_t features);

}  // namespace clikart::codegen::llvm_module
