// Codes of quantized weights to floats (ir/code_layout.h), a vector of a panel's lanes at a time.
#pragma once

#include <optional>

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "clikart/ir/kernel_spec.h"
#include "kernel_builder.h"
#include "placed_codes.h"

namespace clikart::codegen::llvm_module {

// Of one panel, inside one entry.
class CodeDecoder {
 public:
  // `positions`: of a code in its unit where it may be decoded in place; 1 where all are shifted down.
  CodeDecoder(KernelBuilder& build, const ir::KernelSpec& spec, int positions);

  const ir::CodeLayout& layout() const { return layout_; }
  // Codes come in units of 32 bits a lane, else in bytes.
  bool in_units() const { return decoding_.tabled(); }
  int vectors() const { return static_cast<int>(ir::kPanelLanes) / build_.lanes(); }

  // Before the codes of a group.
  void BeginGroup(Value* header);
  // Code `code` of each lane of vector `vector`, of its units, as what x is multiplied by.
  Value* DecodeUnits(Value* units, int code, int vector);
  // A step's bytes from `from` on.
  Value* DecodeBytes(Value* from, int vector);

 private:
  Value* SubtractZeroPoints(Value* values, int vector);
  Value* LevelsOf(Value* codes);
  Value* TableFrom(int first);
  Value* LookUp(Value* indices);
  Value* Splat(float number);

  KernelBuilder& build_;
  const ir::CodeLayout layout_;
  const ir::Decoding& decoding_;
  const std::optional<PlacedCodes> placed_;  // where that is shorter than a table
  const int positions_;
  Value* table_ = nullptr;       // in memory, where no instruction takes lanes from one
  Values zero_points_;           // of the group at hand, by vector
  std::vector<Values> offsets_;  // of placed codes, by position and vector
};

}  // namespace clikart::codegen::llvm_module
