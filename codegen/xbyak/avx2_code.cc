#include "avx2_code.h"

#include <array>

namespace clikart::codegen {

Avx2Code::Avx2Code(std::span<uint8_t> buffer) : CodeGenerator(buffer.size(), buffer.data()) { Xbyak::ClearError(); }

int32_t Avx2Code::Begin() {
  align(64);
  vectors_taken_ = 0;
  pointers_taken_ = 0;
  return static_cast<int32_t>(getSize());
}

void Avx2Code::Return() {
  vzeroupper();
  ret();
}

Xbyak::Ymm Avx2Code::TakeVector() {
  if (vectors_taken_ == 16) out_of_registers_ = true;
  return Ymm(vectors_taken_++ % 16);
}

Xbyak::Reg64 Avx2Code::TakePointer() {
  const std::array free = {rax, rcx, rdx, rsi, r8, r9, r10, r11};
  if (pointers_taken_ == static_cast<int>(free.size())) out_of_registers_ = true;
  return free[pointers_taken_++ % free.size()];
}

Xbyak::Address Avx2Code::Argument(size_t offset) { return ptr[rdi + offset]; }

Xbyak::Address Avx2Code::Constant(uint32_t bits) {
  for (const auto& [known, label] : constants_) {
    if (known == bits) return ptr[rip + label];
  }
  constants_.emplace_back(bits, Label());
  return ptr[rip + constants_.back().second];
}

size_t Avx2Code::Finish() {
  instruction_bytes_ = static_cast<int64_t>(getSize());
  align(32);
  for (auto& [bits, label] : constants_) {
    L(label);
    for (int lane = 0; lane < 8; ++lane) dd(bits);
  }
  const bool failed = out_of_registers_ || Xbyak::GetError() != Xbyak::ERR_NONE;
  Xbyak::ClearError();
  return failed ? 0 : getSize();
}

}  // namespace clikart::codegen
