// What a kernel knows of its codes when it is assembled: how they lie, and how each becomes a float.
#pragma once

#include <cstddef>

#include "clikart/ir/code_layout.h"
#include "clikart/ir/decoding.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

struct CodeFormat {
  explicit CodeFormat(const ir::KernelSpec& spec)
      : layout(ir::CodeLayoutOf(spec)), scheme(*spec.scheme), decoding(ir::DecodingOf(scheme)) {
    const int64_t group = layout.GroupSteps(0);
    group_bytes = layout.GroupBytes(group);
    whole_units = spec.depth() % spec.interleave == 0 && (group % spec.interleave == 0 || layout.Groups() == 1);
  }

  int bits() const { return scheme.bits; }
  int unit() const { return layout.interleave; }  // codes side by side in a lane
  int unit_bytes() const { return static_cast<int>(layout.UnitBytes()); }
  int codes_at() const { return static_cast<int>(layout.CodesAt()); }

  ir::CodeLayout layout;
  ir::QuantScheme scheme;
  const ir::Decoding& decoding;
  int64_t group_bytes;  // from one group to the next
  bool whole_units;     // no group ends within a unit
};

// Which code of a unit is decoded: a number that is known when the kernel is assembled, or the one that a register of
// shift counts says.
inline constexpr int kShiftedCode = -1;

// The vector registers of a decoder, from `first` on, and where a panel's zero points lie for it.
struct CodeDecoder {
  const CodeFormat& format;
  int panels = 1;
  size_t offsets = 0;  // CodeOffsets of the first panel, from the argument's address
  bool placed = true;  // decodes codes whose number is known, beside kShiftedCode
  int first = 0;
  int position = -1;  // that the constants at hand are for
};

}  // namespace clikart::codegen
