// A call of a register kernel by a function that walks groups: the kernel's arguments lie on the stack.
#pragma once

#include "kernel_builder.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {

class MicroCall {
 public:
  MicroCall(KernelBuilder& build, Value* micro) : build_(build), micro_(micro) {
    static_assert(sizeof(MicroArgs) % sizeof(int64_t) == 0);
    arguments_ = build.Scratch(llvm::ArrayType::get(build.getInt64Ty(), sizeof(MicroArgs) / sizeof(int64_t)));
  }

  void Set(size_t offset, Value* value) {
    build_.CreateStore(value, build_.At(arguments_, static_cast<int64_t>(offset)));
  }
  void Call() {
    auto* const type = llvm::FunctionType::get(build_.getVoidTy(), {build_.getPtrTy()}, false);
    build_.CreateCall(type, micro_, {arguments_});
  }

 private:
  KernelBuilder& build_;
  Value* const micro_;
  Value* arguments_;
};

}  // namespace clikart::codegen::llvm_module
