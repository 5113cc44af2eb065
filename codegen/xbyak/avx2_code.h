// Assembles the entries of one AVX2 + FMA + F16C kernel (panel_driver.h says what they do).
#pragma once

#include <xbyak/xbyak.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "clikart/ir/program.h"
#include "panel_driver.h"
#include "register_plan.h"

namespace clikart::codegen {

// How the weights that a kernel reads lie in their panels.
struct Packing {
  ir::DType dtype = ir::DType::kFloat32;
  int interleave = 1;                                                                       // ir/panel_layout.h
  int DepthBytes() const { return static_cast<int>(ir::kPanelLanes * ir::SizeOf(dtype)); }  // of one k step
};

class Avx2Code : private Xbyak::CodeGenerator {
 public:
  // Assembles to `buffer`, whose start is aligned to 64 bytes.
  explicit Avx2Code(std::span<uint8_t> buffer);

  // Each assembles one entry and answers its offset.
  int32_t Micro(int rows, int panels, const Packing& weights);
  // `lanes` of each panel, 1 to 16.
  int32_t Depthwise(ir::DType x, ir::DType weights, int lanes);
  int32_t Stage(ir::DType x, ir::Access access);
  int32_t Widen(const Packing& weights);
  // `program` stands for the spec's activation. It keeps to the first `vectors` registers (at least
  // kFewestRegisters) and spills the rest.
  int32_t Epilogue(const ir::KernelSpec& spec, const ir::Program& program, int vectors = 16);

  // Writes the constants and answers the size of the whole, or 0 where the buffer did not hold it or
  // something could not be encoded.
  size_t Finish();
  // Of the whole, after Finish: where the constants begin.
  int64_t instruction_bytes() const { return instruction_bytes_; }

 private:
  using Ymm = Xbyak::Ymm;
  using Reg64 = Xbyak::Reg64;
  using RegExp = Xbyak::RegExp;
  using Label = Xbyak::Label;
  using Address = Xbyak::Address;

  // A function starts on a cache line with every register free but that of its argument.
  int32_t Begin();
  void Return();
  Ymm TakeVector();
  Reg64 TakePointer();
  Address Argument(size_t offset);
  // Eight lanes of `bits`.
  Address Constant(uint32_t bits);

  // avx2_data.cc
  // Brings to `aux` what DecodeStep wants there.
  void PrepareDecode(const Packing& weights, const Ymm& aux);
  // Sixteen lanes of k step `k` of the packed step at `from`, as f32 in `low` and `high`. `aux` is as prepared.
  void DecodeStep(const Packing& weights, const RegExp& from, int k, const Ymm& low, const Ymm& high, const Ymm& aux);
  // Element `k` of each of eight lanes' pairs at `from`, as f32.
  void DecodePairs(ir::DType dtype, const RegExp& from, int k, const Ymm& to, const Ymm& aux);
  // Eight elements at `from` as f32.
  void LoadEight(ir::DType dtype, const Ymm& to, const RegExp& from);
  // The last `count & 7` elements at `from`, as f32 to `to`; both pointers move.
  void CopyTail(ir::DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Ymm& value);
  // Rounds eight f32 lanes in place; 16-bit results lie in the low half.
  void Round(ir::DType dtype, const Ymm& value, const Ymm& spare0, const Ymm& spare1);
  void StoreEight(ir::DType dtype, const RegExp& to, const Ymm& value);
  // The first `lanes` (1..7) of the eight; `value` is lost.
  void StoreTail(ir::DType dtype, const RegExp& to, const Ymm& value, const Reg64& lanes);

  // avx2_depthwise.cc
  // All ones in the first `lanes` (1..7) of eight.
  void FirstLanes(const Ymm& mask, const Ymm& spare, int lanes);
  // The first `lanes` (1..8) elements at `from` as f32, and nothing behind them. f32 takes them by `mask`.
  void LoadFirst(ir::DType dtype, const Ymm& to, const RegExp& from, int lanes, const Ymm& mask);

  // avx2_program.cc
  void Translate(const Step& step);
  void TranslateMove(const Step& step);
  void TranslateFma(const Step& step);

  bool out_of_registers_ = false;
  int64_t instruction_bytes_ = 0;
  int vectors_taken_ = 0;
  int pointers_taken_ = 0;
  std::vector<std::pair<uint32_t, Label>> constants_;
};

}  // namespace clikart::codegen
