// What every backend assembles with: entries, registers by role, constants behind the code, and a record of
// the inner loops.
#pragma once

#include <xbyak/xbyak.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "clikart/codegen/kernel.h"

namespace clikart::codegen {

class Assembler : protected Xbyak::CodeGenerator {
 public:
  virtual ~Assembler() = default;
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  // Writes the constants and answers the size of the whole, or 0 where the buffer did not hold it or
  // something could not be encoded.
  size_t Finish();
  // An entry asked for more registers than there are: a fault of the backend or of its register tile.
  bool out_of_registers() const { return out_of_registers_; }
  // Of the whole, after Finish: where the constants begin.
  int64_t instruction_bytes() const { return instruction_bytes_; }
  const std::vector<Loop>& loops() const { return loops_; }

 protected:
  // A vector register of any width: the operand says which.
  using Vector = Xbyak::Xmm;
  using Reg64 = Xbyak::Reg64;
  using RegExp = Xbyak::RegExp;
  using Label = Xbyak::Label;
  using Address = Xbyak::Address;

  // Assembles to `buffer`, whose start is aligned to 64 bytes, with `vectors` vector registers.
  Assembler(std::span<uint8_t> buffer, int vectors);

  // A function starts on a cache line with every register free but that of its argument.
  int32_t Begin();
  void Return();

  // Registers by role; asking for more than there are is an error of Finish.
  int vectors() const { return vectors_; }
  int vectors_taken() const { return vectors_taken_; }
  int TakeVectors(int count);  // answers the first one's number
  Reg64 TakePointer();
  Address Argument(size_t offset) { return ptr[rdi + offset]; }

  // The place of `bits` behind the code, repeated for as many lanes as the backend asks for.
  Label& ConstantLabel(uint32_t bits);
  virtual int constant_lanes() const = 0;
  // The place of a table of floats behind the code.
  Label& TableLabel(const std::array<float, 16>& table);

  // Records the loop from `begin` to here.
  void EndLoop(std::string name, size_t begin, int64_t multiplies);

 private:
  bool out_of_registers_ = false;
  int64_t instruction_bytes_ = 0;
  const int vectors_;
  int vectors_taken_ = 0;
  int pointers_taken_ = 0;
  std::vector<std::pair<uint32_t, Label>> constants_;
  std::vector<std::pair<std::array<float, 16>, Label>> tables_;
  std::vector<Loop> loops_;
};

}  // namespace clikart::codegen
