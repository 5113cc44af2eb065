#include "assembler.h"

#include <array>
#include <bit>

namespace clikart::codegen {
namespace {

constexpr int kConstantAlignment = 32;
constexpr int kTableAlignment = 64;

}  // namespace

Assembler::Assembler(std::span<uint8_t> buffer, int vectors)
    : CodeGenerator(buffer.size(), buffer.data()), vectors_(vectors) {
  Xbyak::ClearError();
}

int32_t Assembler::Begin() {
  align(64);
  vectors_taken_ = 0;
  pointers_taken_ = 0;
  return static_cast<int32_t>(getSize());
}

void Assembler::Return() {
  vzeroupper();
  ret();
}

int Assembler::TakeVectors(int count) {
  const int first = vectors_taken_;
  vectors_taken_ += count;
  if (vectors_taken_ > vectors_) out_of_registers_ = true;
  return first;
}

Xbyak::Reg64 Assembler::TakePointer() {
  const std::array free = {rax, rcx, rdx, rsi, r8, r9, r10, r11};
  if (pointers_taken_ >= static_cast<int>(free.size())) out_of_registers_ = true;
  return free[static_cast<size_t>(pointers_taken_++) % free.size()];
}

Xbyak::Label& Assembler::ConstantLabel(uint32_t bits) {
  for (auto& [known, label] : constants_) {
    if (known == bits) return label;
  }
  return constants_.emplace_back(bits, Label()).second;
}

Xbyak::Label& Assembler::TableLabel(const std::array<float, 16>& table) {
  for (auto& [known, label] : tables_) {
    if (known == table) return label;
  }
  return tables_.emplace_back(table, Label()).second;
}

void Assembler::EndLoop(std::string name, size_t begin, int64_t multiplies) {
  loops_.push_back({std::move(name), static_cast<int32_t>(begin), static_cast<int32_t>(getSize()), multiplies});
}

size_t Assembler::Finish() {
  instruction_bytes_ = static_cast<int64_t>(getSize());
  align(tables_.empty() ? kConstantAlignment : kTableAlignment);
  for (auto& [table, label] : tables_) {
    L(label);
    for (const float value : table) dd(std::bit_cast<uint32_t>(value));
  }
  for (auto& [bits, label] : constants_) {
    L(label);
    for (int lane = 0; lane < constant_lanes(); ++lane) dd(bits);
  }
  const bool failed = out_of_registers_ || Xbyak::GetError() != Xbyak::ERR_NONE;
  Xbyak::ClearError();
  return failed ? 0 : getSize();
}

}  // namespace clikart::codegen
