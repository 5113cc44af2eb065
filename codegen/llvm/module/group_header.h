// What a group's header says (ir/code_layout.h): vectors of a panel's lanes.
#pragma once

#include "clikart/ir/code_layout.h"
#include "kernel_builder.h"

namespace clikart::codegen::llvm_module {

// As f32.
Values LoadScales(KernelBuilder& build, const ir::CodeLayout& layout, Value* header);
Values LoadMinimums(KernelBuilder& build, const ir::CodeLayout& layout, Value* header);
// Scales as groups are multiplied by them: times those of a second level, which are at `factors`, where there are any.
Values LoadWholeScales(KernelBuilder& build, const ir::CodeLayout& layout, Value* header, Value* factors);
// As int32; none where the scheme has none.
Values LoadZeroPoints(KernelBuilder& build, const ir::CodeLayout& layout, Value* header);

// A vector of bytes, each extended to a lane of 32 bits.
Value* LoadBytes(KernelBuilder& build, Value* from, bool is_signed);

}  // namespace clikart::codegen::llvm_module
