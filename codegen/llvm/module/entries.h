// The entries of a kernel (panel_driver.h and depthwise_driver.h say what they do), one builder each.
#pragma once

#include "clikart/ir/kernel_spec.h"
#include "kernel_builder.h"

namespace clikart::codegen::llvm_module {

// How weights lie in a packed step (ir/panel_layout.h).
struct Packing {
  ir::DType dtype = ir::DType::kFloat32;
  int interleave = 1;
  int64_t DepthBytes() const;  // of one k
};

// A packed step at `from` as it lies, and one of its k as f32 vectors.
Values LoadPacked(KernelBuilder& build, const Packing& weights, Value* from);
Values Decode(KernelBuilder& build, const Packing& weights, const Values& packed, int k);

// A function that multiplies any shape of tile, and a call of it for the k steps from `first` on.
llvm::Function* BuildAnyTile(KernelBuilder& build, const std::string& name, const Packing& weights);
void CallAnyTile(KernelBuilder& build, llvm::Function* any_tile, int rows, int panels, Value* first);
// `any_tile` is for the same weights.
void BuildMicro(KernelBuilder& build, int rows, int panels, const Packing& weights, llvm::Function* any_tile);
void BuildStage(KernelBuilder& build, ir::DType x, ir::Access access);
void BuildWiden(KernelBuilder& build, const Packing& weights);
// `lanes` of each panel, 1 to 16.
void BuildDepthwise(KernelBuilder& build, ir::DType x, ir::DType weights, int lanes);
void BuildEpilogue(KernelBuilder& build, const ir::KernelSpec& spec);

}  // namespace clikart::codegen::llvm_module
