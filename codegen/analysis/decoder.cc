#include "decoder.h"

#include <llvm/MC/MCTargetOptions.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

// Declared by no header of LLVM.
extern "C" void LLVMInitializeX86TargetMCA();

namespace clikart::analysis {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";

const llvm::Target& X86() {
  static const llvm::Target* const target = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
    LLVMInitializeX86TargetMCA();
    std::string error;
    return llvm::TargetRegistry::lookupTarget(kTriple, error);
  }();
  return *target;
}

}  // namespace

Decoder::Decoder(std::string_view cpu)
    : target_(X86()),
      registers_(target_.createMCRegInfo(kTriple)),
      assembly_(target_.createMCAsmInfo(*registers_, kTriple, llvm::MCTargetOptions())),
      instructions_(target_.createMCInstrInfo()),
      jumps_(target_.createMCInstrAnalysis(instructions_.get())),
      cpu_(target_.createMCSubtargetInfo(kTriple, llvm::StringRef(cpu.data(), cpu.size()), "")),
      context_(std::make_unique<llvm::MCContext>(llvm::Triple(kTriple), assembly_.get(), registers_.get(), cpu_.get())),
      disassembler_(target_.createMCDisassembler(*cpu_, *context_)),
      printer_(target_.createMCInstPrinter(llvm::Triple(kTriple), /*SyntaxVariant=*/1, *assembly_, *instructions_,
                                           *registers_)) {}

absl::StatusOr<std::vector<Decoded>> Decoder::Decode(std::span<const uint8_t> code) const {
  std::vector<Decoded> decoded;
  const llvm::ArrayRef<uint8_t> bytes(code.data(), code.size());
  for (uint64_t at = 0; at < code.size();) {
    Decoded next;
    uint64_t size = 0;
    const auto status = disassembler_->getInstruction(next.instruction, size, bytes.slice(at), at, llvm::nulls());
    if (status != llvm::MCDisassembler::Success || size == 0) {
      return absl::InvalidArgumentError(absl::StrCat("no instruction at byte ", at));
    }
    next.offset = static_cast<int64_t>(at);
    next.bytes = static_cast<int64_t>(size);
    decoded.push_back(std::move(next));
    at += size;
  }
  return decoded;
}

std::string Decoder::Print(const Decoded& decoded) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  printer_->printInst(&decoded.instruction, static_cast<uint64_t>(decoded.offset), "", *cpu_, stream);
  stream.flush();
  for (char& letter : text) {
    if (letter == '\t') letter = ' ';
  }
  return text.starts_with(' ') ? text.substr(1) : text;
}

std::string_view Decoder::Opcode(const llvm::MCInst& instruction) const {
  const llvm::StringRef name = instructions_->getName(instruction.getOpcode());
  return {name.data(), name.size()};
}

unsigned Decoder::OpcodeOf(std::string_view name) const {
  unsigned opcode = 0;
  while (instructions_->getName(opcode) != llvm::StringRef(name.data(), name.size())) ++opcode;
  return opcode;
}

}  // namespace clikart::analysis
