// The AVX-512 (F BW VL DQ) backend, with VNNI where kernels ask for it: thirty-two registers of sixteen lanes, operands
// broadcast from memory, and masks where loads and stores end within a vector.
#pragma once

#include <cstdint>
#include <span>

#include "../common/kernel_code.h"

namespace clikart::codegen {

// Twenty-eight chains of fma, two vectors of weights, one of inputs and one to decode with: an input that is
// brought to a register serves two of the chains, so that loads stay well below the fmas.
inline constexpr RegisterTile kAvx512Tile{.rows = 14, .panels = 2, .depth = 1, .decoded_rows = 12};
// Seven by two sums, as many accumulators, three others.
inline constexpr RegisterTile kAvx512ShortGroupTile{.rows = 7, .panels = 2, .depth = 1, .decoded_rows = 12};

// Twenty sums of a group of codes; with an odd number of rows the pointers would not do.
inline constexpr RegisterTile kAvx512CodesTile{.rows = 10, .panels = 2};

class Avx512Code : public KernelCode {
 public:
  explicit Avx512Code(std::span<uint8_t> buffer) : KernelCode(buffer, 32, 16) {}

 protected:
  using KernelCode::Register;
  Vector Register(int number, int lanes) const override;
  int constant_lanes() const override { return 1; }
  Address Constant(uint32_t bits) override { return ptr_b[rip + ConstantLabel(bits)]; }
  bool broadcasts_operands() const override { return true; }
  Address BroadcastOperand(const RegExp& from) override { return ptr_b[from]; }
  void LoadConstant(const Vector& to, uint32_t bits) override { vbroadcastss(to, ptr[rip + ConstantLabel(bits)]); }

  void Load(ir::DType dtype, const Vector& to, const RegExp& from) override;
  void CopyTail(ir::DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Reg64& spare,
                const Vector& value) override;
  void PrepareFirst(int lanes, const Vector& mask, const Vector& spare) override;
  void LoadFirst(ir::DType dtype, const Vector& to, const RegExp& from, int lanes, const Vector& mask) override;
  Xbyak::PreferredEncoding dot_encoding() const override { return Xbyak::EvexEncoding; }
  void PrepareDecode(ir::DType dtype, const Vector& aux) override;
  void DecodePairs(ir::DType dtype, const RegExp& from, int k, const Vector& to, const Vector& aux) override;
  void Round(ir::DType dtype, const Vector& value, const Vector& spare0, const Vector& spare1) override;
  void NarrowCodes(int bytes, const Vector& first, const Vector& second) override;
  void Store(ir::DType dtype, const RegExp& to, const Vector& value) override;
  void StoreTail(ir::DType dtype, const RegExp& to, const Vector& value, const Reg64& count,
                 const Reg64& spare) override;
  void Compare(const Vector& to, const Vector& a, const Xbyak::Operand& b, uint8_t predicate) override;
  void Select(const Vector& to, const Vector& mask, const Xbyak::Operand& a, const Vector& b) override;
  int DecoderRegisters(const CodeDecoder& decoder) const override;
  void BeginDecoding(CodeDecoder& decoder) override;
  void BeginCodes(CodeDecoder& decoder, const RegExp& header, int panel, int half, int spare) override;
  void BeginShiftedCodes(CodeDecoder& decoder) override;
  void NextShiftedCode(CodeDecoder& decoder) override;
  void DecodeTabled(const CodeDecoder& decoder, const RegExp& from, int code, const Vector& to, int panel,
                    int half) override;
  void SubtractZeroPoints(const CodeDecoder& decoder, int panel, int half, const Vector& value) override;

 private:
  // The register's low end: what so many lanes of 16 bits, or of a byte, take.
  static Vector Half(const Vector& vector);
  static Xbyak::Xmm Quarter(const Vector& vector) { return Xbyak::Xmm(vector.getIdx()); }
  // Elements at `from` that the mask k1 chooses, zeros elsewhere, as f32.
  void LoadMasked(ir::DType dtype, const Vector& to, const RegExp& from);
  // All ones in the first `count` bits of k1.
  void MaskFirst(const Reg64& count, const Reg64& spare);
};

}  // namespace clikart::codegen
