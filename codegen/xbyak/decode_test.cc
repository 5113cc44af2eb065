// Every kernel, instruction by instruction: LLVM's disassembler knows each of them, and none is above the
// level that the kernel was emitted for.
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include <string>
#include <string_view>
#include <variant>

#include "clikart/ir/activation.h"
#include "gtest/gtest.h"
#include "xbyak_emitter.h"

namespace clikart::codegen {
namespace {

constexpr uint8_t kEvexPrefix = 0x62;  // begins AVX-512's instructions and no other ones in 64-bit mode
// VEX-coded families that are newer than AVX2.
constexpr std::string_view kNewer[] = {"vpdp", "tdp", "tile", "vcvtne", "vbcst", "vpmadd52", "sha", "gf2p8"};

class Disassembler {
 public:
  Disassembler() {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
    context_ = LLVMCreateDisasm("x86_64-unknown-linux-gnu", nullptr, 0, nullptr, nullptr);
  }
  ~Disassembler() { LLVMDisasmDispose(context_); }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;

  // The size of the instruction at `at`, its text in `text`; 0 where there is none.
  size_t Decode(const std::vector<uint8_t>& code, size_t at, size_t end, std::string& text) {
    char buffer[256] = "";
    const size_t size =
        LLVMDisasmInstruction(context_, const_cast<uint8_t*>(code.data()) + at, end - at, at, buffer, sizeof(buffer));
    text = buffer;
    return size;
  }

 private:
  LLVMDisasmContextRef context_;
};

// Answers how many instructions were read.
int CheckKernel(Disassembler& disassembler, const ir::KernelSpec& spec) {
  auto emitted = XbyakEmitter().Emit(spec, TargetOf(IsaLevel::kAvx2));
  const auto* kernel = std::get_if<EmittedKernel>(&emitted);
  if (kernel == nullptr) {
    ADD_FAILURE() << spec.ToString() << ": " << std::get<Rejection>(emitted).detail;
    return 0;
  }
  int instructions = 0;
  std::string text;
  const auto end = static_cast<size_t>(kernel->instruction_bytes);
  for (size_t at = 0; at < end; ++instructions) {
    const size_t size = disassembler.Decode(kernel->code, at, end, text);
    EXPECT_GT(size, 0u) << "byte " << at << " of " << spec.ToString();
    if (size == 0) return instructions;
    EXPECT_NE(kernel->code[at], kEvexPrefix) << text << " in " << spec.ToString();
    for (const std::string_view newer : kNewer) {
      EXPECT_EQ(text.find(newer), std::string::npos) << text << " in " << spec.ToString();
    }
    at += size;
  }
  return instructions;
}

TEST(DecodeTest, EveryKernelIsAvx2) {
  Disassembler disassembler;
  constexpr ir::DType kFloats[] = {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16};
  int64_t kernels = 0, instructions = 0;
  for (const ir::Activation activation : ir::AllActivations()) {
    for (const ir::DType x : kFloats) {
      for (const ir::DType w : kFloats) {
        ir::KernelSpec spec;
        spec.n = 40;
        spec.k = 24;
        spec.x = spec.y = x;
        spec.w = w;
        spec.activation = activation;
        instructions += CheckKernel(disassembler, spec);
        spec.access = ir::Access::kIndirect;
        spec.taps = 9;
        if (!spec.gated()) spec.bias = ir::BiasKind::kFloat32;
        instructions += CheckKernel(disassembler, spec);
        kernels += 2;
        if (spec.gated()) continue;
        spec.contraction = ir::Contraction::kDepthwise;
        spec.k = 1;
        instructions += CheckKernel(disassembler, spec);
        ++kernels;
      }
    }
  }
  EXPECT_GT(instructions, 1000 * kernels);
}

}  // namespace
}  // namespace clikart::codegen
