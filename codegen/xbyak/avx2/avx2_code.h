// The AVX2 + FMA + F16C backend, with AVX-VNNI where kernels ask for it: sixteen registers of eight lanes. Stores and
// loads that end within a vector go piece by piece.
#pragma once

#include <cstdint>
#include <span>

#include "../common/kernel_code.h"

namespace clikart::codegen {

// Twelve chains of fma, two vectors of weights and one of inputs.
inline constexpr RegisterTile kAvx2Tile{.rows = 6, .panels = 1, .depth = 1, .decoded_rows = 4};

class Avx2Code final : public KernelCode {
 public:
  explicit Avx2Code(std::span<uint8_t> buffer) : KernelCode(buffer, 16, 8) {}

 private:
  using KernelCode::Register;
  Vector Register(int number, int) const override { return Xbyak::Ymm(number % vectors()); }
  int constant_lanes() const override { return lanes(); }
  Address Constant(uint32_t bits) override { return ptr[rip + ConstantLabel(bits)]; }
  void LoadConstant(const Vector& to, uint32_t bits) override { vmovups(to, Constant(bits)); }

  void Load(ir::DType dtype, const Vector& to, const RegExp& from) override;
  void CopyTail(ir::DType dtype, const Reg64& from, const Reg64& to, const Reg64& count, const Reg64& spare,
                const Vector& value) override;
  void PrepareFirst(int lanes, const Vector& mask, const Vector& spare) override;
  void LoadFirst(ir::DType dtype, const Vector& to, const RegExp& from, int lanes, const Vector& mask) override;
  Xbyak::PreferredEncoding dot_encoding() const override { return Xbyak::VexEncoding; }
  void PrepareDecode(ir::DType dtype, const Vector& aux) override;
  void DecodePairs(ir::DType dtype, const RegExp& from, int k, const Vector& to, const Vector& aux) override;
  void Round(ir::DType dtype, const Vector& value, const Vector& spare0, const Vector& spare1) override;
  void NarrowCodes(int bytes, const Vector& first, const Vector& second) override;
  void Store(ir::DType dtype, const RegExp& to, const Vector& value) override;
  void StoreTail(ir::DType dtype, const RegExp& to, const Vector& value, const Reg64& count,
                 const Reg64& spare) override;
  void Compare(const Vector& to, const Vector& a, const Xbyak::Operand& b, uint8_t predicate) override {
    vcmpps(to, a, b, predicate);
  }
  void Select(const Vector& to, const Vector& mask, const Xbyak::Operand& a, const Vector& b) override {
    vblendvps(to, b, a, mask);
  }

  int DecoderRegisters(const CodeDecoder& decoder) const override;
  void BeginDecoding(CodeDecoder& decoder) override;
  void BeginCodes(CodeDecoder& decoder, const RegExp& header, int panel, int half, int spare) override;
  void BeginCode(CodeDecoder& decoder, int code) override;
  void BeginShiftedCodes(CodeDecoder& decoder) override;
  void NextShiftedCode(CodeDecoder& decoder) override;
  void DecodeTabled(const CodeDecoder& decoder, const RegExp& from, int code, const Vector& to, int panel,
                    int half) override;
  void SubtractZeroPoints(const CodeDecoder& decoder, int panel, int half, const Vector& value) override;
  // Where a vector's zero points lie for codes at `position`.
  Address OffsetAt(const CodeDecoder& decoder, int position, int panel, int half);
  void LookUp(const CodeDecoder& decoder, const Vector& to);
};

}  // namespace clikart::codegen
