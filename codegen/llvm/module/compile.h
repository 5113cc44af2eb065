// From IR to bytes that run wherever they are copied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "isa.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

namespace clikart::codegen::llvm_module {

// A block of code that jumps to its own beginning, in byte offsets.
struct BlockLoop {
  int32_t begin, end;
  std::string function;
};

struct Image {
  std::vector<uint8_t> bytes;  // instructions, then the constants that they read
  size_t instruction_bytes = 0;
  std::map<std::string, int32_t> symbols;  // of functions: their offsets
  std::vector<BlockLoop> loops;
};

// A code generator for exactly the features of `isa`.
std::unique_ptr<llvm::TargetMachine> MakeTargetMachine(const Isa& isa);

// Compiles the module and links it with itself. An error names what cannot be linked: code that calls anything
// outside, or holds an address.
llvm::Expected<Image> Compile(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace clikart::codegen::llvm_module
