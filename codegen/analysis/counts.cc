#include "counts.h"

#include <algorithm>
#include <array>

namespace clikart::analysis {
namespace {

// How LLVM's names of operations begin.
constexpr std::array<std::string_view, 4> kFmas = {"VFMADD", "VFMSUB", "VFNMADD", "VFNMSUB"};
// vpmaddwd is how integers multiply below VNNI.
constexpr std::array<std::string_view, 3> kDots = {"VPDPBUSD", "VDPBF16PS", "VPMADDWD"};
constexpr std::array<std::string_view, 1> kTileProducts = {"TDP"};
constexpr std::array<std::string_view, 1> kTileLoads = {"TILELOAD"};
constexpr std::array<std::string_view, 1> kPrefetches = {"PREFETCH"};

template <size_t n>
bool BeginsAs(std::string_view opcode, const std::array<std::string_view, n>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return opcode.starts_with(beginning); });
}

bool IsStackAccess(const Decoder& decoder, const llvm::MCInst& instruction) {
  const llvm::MCInstrDesc& description = decoder.instructions().get(instruction.getOpcode());
  const auto operands = description.operands();
  for (unsigned i = 0; i < operands.size(); ++i) {
    if (operands[i].OperandType != llvm::MCOI::OPERAND_MEMORY) continue;
    const llvm::MCOperand& base = instruction.getOperand(i);  // x86 puts an address's base first
    return base.isReg() && base.getReg() != 0 && std::string_view(decoder.registers().getName(base.getReg())) == "RSP";
  }
  return false;
}

}  // namespace

bool IsMultiply(std::string_view opcode) {
  return (BeginsAs(opcode, kFmas) && opcode.find("PS") != opcode.npos) || BeginsAs(opcode, kDots);
}

LoopCounts Count(const Decoder& decoder, const std::vector<Decoded>& loop) {
  LoopCounts counts;
  for (const Decoded& each : loop) {
    const std::string_view opcode = decoder.Opcode(each.instruction);
    const llvm::MCInstrDesc& description = decoder.instructions().get(each.instruction.getOpcode());
    ++counts.instructions;
    if (IsMultiply(opcode)) ++counts.multiplies;
    if (BeginsAs(opcode, kTileProducts)) ++counts.tile_products;
    if (BeginsAs(opcode, kTileLoads)) {
      ++counts.tile_loads;
    } else if (!BeginsAs(opcode, kPrefetches)) {
      if (description.mayLoad()) ++counts.loads;
      if (description.mayStore()) ++counts.stores;
    }
    if (IsStackAccess(decoder, each.instruction)) ++counts.stack_accesses;
  }
  return counts;
}

absl::StatusOr<LoopCounts> CountLoop(std::span<const uint8_t> code) {
  const Decoder decoder("");
  const auto loop = decoder.Decode(code);
  if (!loop.ok()) return loop.status();
  return Count(decoder, *loop);
}

}  // namespace clikart::analysis
