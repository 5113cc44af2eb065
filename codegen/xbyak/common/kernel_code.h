// Assembles the entries of one kernel (panel_driver.h and depthwise_driver.h say what they do). What all
// instruction sets share is written here, once; a backend derives from it and says how wide vectors are and
// how they are loaded, decoded, rounded and stored.
#pragma once

#include <functional>
#include <string_view>

#include "assembler.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "clikart/ir/program.h"
#include "clikart/ir/quant_scheme.h"
#include "code_decoder.h"
#include "panel_driver.h"
#include "register_plan.h"
#include "strided.h"

namespace clikart::codegen {

// How the weights that a kernel reads lie in their panels.
struct Packing {
  ir::DType dtype = ir::DType::kFloat32;
  int interleave = 1;  // steps that lie side by side in a lane
  int step = 1;        // elements of a step in a lane: what one instruction multiplies
  // Of one step.
  int DepthBytes() const { return static_cast<int>(ir::kPanelLanes * ir::SizeOf(dtype)) * step; }
  // A step is four bytes a lane, multiplied as it lies.
  bool whole() const { return DepthBytes() == ir::kPanelLanes * static_cast<int>(sizeof(float)); }
};

// How a step of a row and one of a lane are multiplied and added to the accumulator.
enum class Multiply : uint8_t {
  kFma,      // f32
  kDotBf16,  // two bf16 by two: vdpbf16ps
  kDot,      // four unsigned codes by four signed ones: vpdpbusd
  kWords,    // two 16-bit numbers by two, which cannot saturate: vpmaddwd and vpaddd
};

// How a part of a unit of unsigned weight codes and a dword of a row are multiplied and added (row_int8_driver.h).
enum class CodeMultiply : uint8_t {
  kDot,    // vpdpbusd
  kBytes,  // vpmaddubsw, which codes of up to four bits cannot saturate, then vpmaddwd by ones and vpaddd
  kWords,  // the even or the odd bytes as 16-bit numbers: vpmaddwd and vpaddd
};

// A register kernel: that many rows by panels of accumulators.
struct MicroShape {
  int rows = 1;
  int panels = 1;
  Packing weights;
  WeightForm form = WeightForm::kPacked;
  Multiply multiply = Multiply::kFma;
  bool unrolls = true;  // else steps go one by one: for what is left beside register tiles
};

class KernelCode : public Assembler {
 public:
  // Each assembles one entry and answers its offset.
  int32_t Micro(const MicroShape& shape);
  // Panels one after the other, `lanes` of each, 1 to 16; or two at a time, with 32 lanes.
  int32_t Depthwise(ir::DType x, const Packing& weights, int lanes);
  // Panels that accumulators for kDepthwiseRows rows leave room for: 1 or 2.
  int DepthwisePanels() const { return vectors() >= 32 ? 2 : 1; }
  // Elements of x as f32, or, for kDotBf16, as they are.
  int32_t Stage(ir::DType x, ir::Access access, Multiply multiply);
  // Codes of x, made unsigned: four of them a step, or two as 16-bit numbers, the even and the odd ones of four.
  int32_t StageCodes(ir::DType x, Multiply multiply);
  int32_t Widen(const Packing& weights);
  // compute="int8" (row_int8_driver.h): rows of x as codes, and the register kernel of that many rows and panels.
  int32_t QuantizeRows(const ir::KernelSpec& spec, const Schedule& schedule);
  int32_t Groups(const ir::KernelSpec& spec, const Schedule& schedule, CodeMultiply multiply, int rows, int panels);
  // Quantized weights (code_driver.h): a register kernel, a panel to floats, rows in another order.
  // Without `unrolls` steps go one by one: for panels that are left beside register tiles.
  int32_t CodeMicro(const CodeFormat& format, const MicroKind& kind, bool unrolls);
  int32_t WidenCodes(const CodeFormat& format);
  int32_t Gather(ir::DType x);
  // `program` stands for the spec's activation. It keeps to the first `vectors` registers (at least
  // kFewestRegisters; 0: all) and spills the rest.
  int32_t Epilogue(const ir::KernelSpec& spec, const ir::Program& program, int vectors = 0);

 protected:
  KernelCode(std::span<uint8_t> buffer, int vectors, int lanes) : Assembler(buffer, vectors), lanes_(lanes) {}

  int lanes() const { return lanes_; }  // 32-bit ones of a whole vector: 8 or 16
  static int VectorBytes(const Vector& vector) { return static_cast<int>(vector.getBit()) / 8; }
  static int LanesOf(const Vector& vector) { return VectorBytes(vector) / 4; }

  // Register `number`, seen as that many 32-bit lanes: lanes(), or half of them where that is still a vector.
  virtual Vector Register(int number, int lanes) const = 0;
  Vector Register(int number) const { return Register(number, lanes_); }
  Vector TakeVector() { return Register(TakeVectors(1)); }
  // `bits` in every lane, as an operand from memory of an instruction on 32-bit lanes.
  virtual Address Constant(uint32_t bits) = 0;
  // The 32 bits at `from` in every lane, likewise, where the instruction set has such operands.
  virtual bool broadcasts_operands() const { return false; }
  virtual Address BroadcastOperand(const RegExp& from) { return ptr[from]; }
  virtual void LoadConstant(const Vector& to, uint32_t bits) = 0;

  // A vector of elements at `from` as f32.
  virtual void Load(ir::DType dtype, const Vector& to, const RegExp& from) = 0;
  // The last `count` modulo lanes() elements at `from`, as f32 to `to`; all registers may change.
  virtual void CopyTail(ir::DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Reg64& spare,
                        const Vector& value) = 0;
  // The first `lanes` (up to a vector) elements at `from` as f32, and nothing behind them. `mask` is as
  // PrepareFirst left it for that many lanes, less than a vector.
  virtual void PrepareFirst(int lanes, const Vector& mask, const Vector& spare) = 0;
  virtual void LoadFirst(ir::DType dtype, const Vector& to, const RegExp& from, int lanes, const Vector& mask) = 0;

  // acc += step * weight, lane by lane. `spare` is lost by kWords.
  void MultiplyAdd(Multiply multiply, const Vector& acc, const Vector& step, const Xbyak::Operand& weight,
                   const Vector& spare);
  virtual Xbyak::PreferredEncoding dot_encoding() const = 0;  // of vpdpbusd

  // Brings to `aux` what DecodePairs wants there, for weights of interleave 2.
  virtual void PrepareDecode(ir::DType dtype, const Vector& aux) = 0;
  // Step `k` of a vector of pairs at `from`: as f32, or of four codes the even or the odd ones as 16-bit numbers.
  virtual void DecodePairs(ir::DType dtype, const RegExp& from, int k, const Vector& to, const Vector& aux) = 0;

  // Rounds f32 lanes in place; 16-bit results lie side by side at the low end, and so do the low bytes of int32
  // lanes for a type of one byte.
  virtual void Round(ir::DType dtype, const Vector& value, const Vector& spare0, const Vector& spare1) = 0;
  // Sixteen int32 in `first`, or in it and `second`, to as many bytes or 16-bit numbers at the low end of `first`.
  virtual void NarrowCodes(int bytes, const Vector& first, const Vector& second) = 0;
  // What Round left.
  virtual void Store(ir::DType dtype, const RegExp& to, const Vector& value) = 0;
  // The first `count` (less than a vector has); `value` and `spare` are lost.
  virtual void StoreTail(ir::DType dtype, const RegExp& to, const Vector& value, const Reg64& count,
                         const Reg64& spare) = 0;

  // to = a compared with b, all ones or zeros in a lane; `predicate` is that of vcmpps.
  virtual void Compare(const Vector& to, const Vector& a, const Xbyak::Operand& b, uint8_t predicate) = 0;
  // to = mask ? a : b
  virtual void Select(const Vector& to, const Vector& mask, const Xbyak::Operand& a, const Vector& b) = 0;

  // Decoding of codes. How many registers it keeps; what it loads to them once.
  virtual int DecoderRegisters(const CodeDecoder& decoder) const = 0;
  virtual void BeginDecoding(CodeDecoder& decoder) = 0;
  // A group's zero points, from its header; `spare` and the register behind it are lost.
  virtual void BeginCodes(CodeDecoder& decoder, const RegExp& header, int panel, int half, int spare) = 0;
  // What code `code` of a unit wants, whichever panel it is of.
  virtual void BeginCode(CodeDecoder&, int) {}
  // A register of shift counts, which says where kShiftedCode lies: the first code of a unit, then the next one.
  virtual void BeginShiftedCodes(CodeDecoder& decoder) = 0;
  virtual void NextShiftedCode(CodeDecoder& decoder) = 0;
  // Codes with a table, of a vector at `from`, to floats; integers with their zero points off, if that is shorter.
  virtual void DecodeTabled(const CodeDecoder& decoder, const RegExp& from, int code, const Vector& to, int panel,
                            int half) = 0;
  // What DecodeTabled leaves of them.
  virtual void SubtractZeroPoints(const CodeDecoder& decoder, int panel, int half, const Vector& value) = 0;

  // A vector of lanes from a group's header (ir/code_layout.h), to register `first`. Scales and minimums come as
  // f32; those of one byte are programs, which may use `count` registers from `first` on.
  void LoadScales(ir::ScaleType type, const RegExp& from, int first, int count);
  void LoadZeroPoints(const Vector& to, const RegExp& from) { vpmovzxbd(to, ptr[from]); }  // as int32

  // A group's header to the GroupHeader at `to` (row_int8_driver.h), by registers [first, first + kHeaderRegisters).
  static constexpr int kHeaderRegisters = 12;
  void KeepHeader(const ir::CodeLayout& layout, const RegExp& header, const RegExp& to, int first);

  // Runs a program on registers [first, first + count), at least kFewestRegisters: input i in first + i. Answers the
  // register that has the result. What does not fit is spilled below rsp, which is as before at the end.
  Vector RunProgram(const ir::Program& program, int first, int count);

  // Code `code` of a vector of the unit at `unit`, as a float less its zero point. Uses registers [first, first +
  // count) and answers which one it is in: the first, if the scheme DecodesInRegisters.
  Vector DecodeCode(CodeDecoder& decoder, const RegExp& unit, int code, int panel, int half, int first, int count);
  // A group's scales and minimums from its header to GroupLanes at `to`, by registers [first, first + count).
  void LoadGroup(const CodeFormat& format, const RegExp& header, const RegExp& to, const RegExp& lane_scales, int first,
                 int count);

 private:
  // The sums at `from` with what `terms` has for their columns, as f32. `spare` is lost.
  void LoadSums(const ir::KernelSpec& spec, const Vector& to, const RegExp& from, const RegExp& terms,
                const Vector& spare);
  // f32 lanes to int32 codes of the output's type.
  void Requantize(const Vector& value, const Vector& spare);

  // Pointers to `count` runs that lie a stride apart, which `shared` may have already; then their values.
  StridedRuns TakeRuns(int count, const StridedRuns* shared);
  void LoadRuns(const StridedRuns& runs, size_t first, size_t stride);  // offsets of arguments
  void SpreadBases(const StridedRuns& runs);

  // All lanes combined by `add_to` (its first vector is the one that changes). Both vectors are lost.
  void ReduceTo32(const Vector& value, const Vector& spare, const Reg64& to,
                  const std::function<void(const Vector&, const Vector&)>& add_to);

  // Steps of Groups.
  struct GroupsKernel;
  void TakeGroupsVectors(GroupsKernel& kernel);
  void StartGroup(const GroupsKernel& kernel);  // reads its headers
  void MultiplyUnit(const GroupsKernel& kernel);
  void FinishGroup(const GroupsKernel& kernel);  // adds its sums to the outputs
  void DecodePart(const GroupsKernel& kernel, const RegExp& from, int part, const Vector& to);
  void MultiplyCodes(const GroupsKernel& kernel, const Vector& sum, const Vector& weight, const Xbyak::Operand& input);
  Vector SumOf(const GroupsKernel& kernel, int row, int panel, int half) const;
  // With the sum's place among the outputs.
  void EachSum(const GroupsKernel& kernel,
               const std::function<void(int row, int panel, int half, const Address& output)>& take);

  // What both forms of CodeMicro have in registers.
  struct CodeTile {
    CodeTile(const CodeFormat& codes, const MicroKind& shape)
        : format(codes), kind(shape), a(shape.rows), b(shape.panels) {}

    const CodeFormat& format;
    MicroKind kind;
    StridedRuns a, b;
    Reg64 spare;
    int first_sum = 0;
    int first_value = 0, values = 0;  // other registers, behind the sums
    int first_kept = -1;              // accumulators, where registers are left for them
  };
  Vector Sum(const CodeTile& tile, int row, int panel, int half) const {
    return Register(tile.first_sum + (row * tile.kind.panels + panel) * halves() + half);
  }
  void TakePointers(CodeTile& tile);
  void LoadPointers(const CodeTile& tile);
  // The accumulator that a sum is added to.
  Vector Kept(const CodeTile& tile, const Vector& sum) const {
    return Register(sum.getIdx() - tile.first_sum + tile.first_kept);
  }
  // Applies `move` to each sum and its place in the accumulators at args[offset].
  template <typename Move>
  void EachSum(const CodeTile& tile, size_t offset, int panel, const Move& move);
  void ClearSums(const CodeTile& tile);
  // acc = fma(t, scale, acc), and the same with sums of inputs and minimums.
  void AddGroup(const CodeTile& tile);
  int32_t PackedCodeMicro(const CodeFormat& format, const MicroKind& kind, bool unrolls);
  int32_t WidenedCodeMicro(const CodeFormat& format, const MicroKind& kind, bool unrolls);

  // Vectors of one step of a panel.
  int halves() const { return static_cast<int>(ir::kPanelLanes) / lanes_; }
  // Vector `half` of step `k` of the packed step at `from`, as it is multiplied.
  void Decode(const Packing& weights, const RegExp& from, int k, int half, const Vector& to, const Vector& aux);

  // A plan's step, one to one; registers have `lanes` lanes, and the plan's first one is `first`.
  void Translate(const Step& step, int lanes, int first = 0);
  void TranslateMove(const Step& step, int lanes, int first);
  void TranslateFma(const Step& step, int lanes, int first);

  const int lanes_;
};

}  // namespace clikart::codegen
