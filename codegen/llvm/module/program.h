// A program's operations as IR, one to one.
#pragma once

#include <span>

#include "clikart/ir/program.h"
#include "kernel_builder.h"

namespace clikart::codegen::llvm_module {

Value* LowerProgram(KernelBuilder& build, const ir::Program& program, std::span<Value* const> inputs);

}  // namespace clikart::codegen::llvm_module
