// Emitters: (KernelSpec, Target) -> code, or a rejection with a name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// Why an emitter will not serve a spec. Name() is what counters and the CLI show, Describe() what a
// person reads.
enum class RejectReason : uint8_t {
  kIsaTooOld,        // the CPU (or CLIKART_MAX_ISA) lacks what the emitter needs
  kContractionKind,  // weight-only or integer contraction
  kDataType,
  kGroupTooLong,  // sums of a group of codes may not fit int32
  kUnevenGroups,  // weight_g_idx gives groups other numbers of inputs than their size
  kCodeTooLarge,
  kNoLlvm,            // the shared object of the LLVM emitter was not found, or is not of this build
  kLlvmFailed,        // LLVM compiled the kernel to something that cannot be used
  kExecutableMemory,  // the system refuses executable memory
  kDisabled,          // CLIKART_EMITTER says otherwise
};

struct Rejection {
  RejectReason reason;
  std::string detail;  // what was found and what was expected
};

std::string_view Name(RejectReason reason);
std::string_view Describe(RejectReason reason);

class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual std::string_view name() const = 0;
  // Code runs without being written anywhere first.
  virtual bool needs_executable_memory() const = 0;
  virtual std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target& target) const = 0;
};

// Every emitter built in, best first, portable last.
std::span<const Emitter* const> Emitters();

// Null where no emitter has that name.
const Emitter* FindEmitter(std::string_view name);

}  // namespace clikart::codegen
