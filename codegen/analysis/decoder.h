// LLVM's machine-code layer for one x86-64 CPU: bytes to MCInst, and what is known of each.
#pragma once

#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrAnalysis.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace clikart::analysis {

struct Decoded {
  int64_t offset = 0;
  int64_t bytes = 0;
  llvm::MCInst instruction;
};

class Decoder {
 public:
  // "" is a CPU of no model, which is enough to decode and print.
  explicit Decoder(std::string_view cpu);

  absl::StatusOr<std::vector<Decoded>> Decode(std::span<const uint8_t> code) const;
  std::string Print(const Decoded& decoded) const;
  // LLVM's name of the operation, operand kinds included: "VFMADD231PSZmb".
  std::string_view Opcode(const llvm::MCInst& instruction) const;
  // The number behind such a name, which has to be one of LLVM's.
  unsigned OpcodeOf(std::string_view name) const;

  const llvm::MCSubtargetInfo& cpu() const { return *cpu_; }
  const llvm::MCInstrInfo& instructions() const { return *instructions_; }
  const llvm::MCRegisterInfo& registers() const { return *registers_; }
  const llvm::MCInstrAnalysis& jumps() const { return *jumps_; }
  const llvm::Target& target() const { return target_; }

 private:
  const llvm::Target& target_;
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> assembly_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCInstrAnalysis> jumps_;
  std::unique_ptr<llvm::MCSubtargetInfo> cpu_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> disassembler_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
};

}  // namespace clikart::analysis
