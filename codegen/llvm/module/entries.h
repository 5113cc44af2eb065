// The entries of a kernel (what they do is in the drivers' headers), one builder each.
#pragma once

#include "clikart/ir/kernel_spec.h"
#include "kernel_builder.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {

// What a lane does with four bytes of x and of a weight.
enum class Multiply : uint8_t {
  kFma,     // f32
  kWords,   // two 16-bit codes each, summed in int32
  kDot,     // four 8-bit codes each, those of x without a sign: vpdpbusd
  kRowDot,  // the same, those of the weight without a sign
  kBytes,   // as kRowDot where codes of the weight have fewer than eight bits, so that pairs fit 16: vpmaddubsw
};

// How weights lie in a packed step (ir/panel_layout.h). A step is what is multiplied at once. Codes of quantized
// weights come in units of 32 bits a lane (ir/code_layout.h); a step of theirs is a part of it (row_int8_driver.h).
struct Packing {
  ir::DType dtype = ir::DType::kFloat32;  // of 32 bits: ready to be multiplied
  int interleave = 1;                     // steps in a packed step
  int step = 1;                           // elements of k in a step
  Multiply multiply = Multiply::kFma;
  int code_bits = 0;  // of quantized weights, else 0
  int64_t StepBytes() const;
};

// A packed step at `from` as it lies, and one of its steps as it is multiplied.
Values LoadPacked(KernelBuilder& build, const Packing& weights, Value* from);
Values Decode(KernelBuilder& build, const Packing& weights, const Values& packed, int step);

// f32 or int32.
llvm::Type* AccumulatorType(KernelBuilder& build, Multiply multiply);
// A step of a staged row, in every lane.
Value* LoadInput(KernelBuilder& build, Multiply multiply, Value* from);
// sum + x * w. An emulated fma may be a call, where it is not `in_place`.
Value* MultiplyAdd(KernelBuilder& build, Multiply multiply, Value* x, Value* w, Value* sum, bool in_place);

// A function that multiplies any shape of tile, and a call of it for the k steps from `first` on.
llvm::Function* BuildAnyTile(KernelBuilder& build, const std::string& name, const Packing& weights);
void CallAnyTile(KernelBuilder& build, llvm::Function* any_tile, int rows, int panels, Value* first);
// `any_tile` is for the same weights. Answers the multiplications in a turn of the loop.
int BuildMicro(KernelBuilder& build, int rows, int panels, const Packing& weights, llvm::Function* any_tile);
// Codes become unsigned: int8 ones are moved up by 128.
void BuildStageCodes(KernelBuilder& build, ir::DType x, Multiply multiply);
void BuildStage(KernelBuilder& build, ir::DType x, ir::Access access);
void BuildWiden(KernelBuilder& build, const Packing& weights);
void BuildGather(KernelBuilder& build, ir::DType x);
void BuildWidenCodes(KernelBuilder& build, const ir::KernelSpec& spec);
// A register kernel that decodes codes in registers. Answers the multiplications in a turn of its innermost loop.
int BuildPackedCodes(KernelBuilder& build, const ir::KernelSpec& spec, const MicroKind& kind);
// Rows as codes, `step` of them in a dword.
void BuildQuantizeRows(KernelBuilder& build, const ir::KernelSpec& spec, int step);
// Functions that multiply the groups of a tile of up to so many accumulators. They take the entry's arguments, rows,
// panels and a register kernel of that shape for one group, which takes MicroArgs.
llvm::Function* BuildWidenedGroups(KernelBuilder& build, const ir::KernelSpec& spec, int64_t accumulators);
llvm::Function* BuildRowInt8Groups(KernelBuilder& build, const ir::KernelSpec& spec, int step, int64_t accumulators);
// `lanes` of each panel, 1 to 16.
void BuildDepthwise(KernelBuilder& build, ir::DType x, ir::DType weights, int lanes);
void BuildEpilogue(KernelBuilder& build, const ir::KernelSpec& spec);

}  // namespace clikart::codegen::llvm_module
