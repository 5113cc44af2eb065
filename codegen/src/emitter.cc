#include "clikart/codegen/emitter.h"

namespace clikart::codegen {
namespace {

struct ReasonText {
  std::string_view name;
  std::string_view description;
};

ReasonText TextOf(RejectReason reason) {
  switch (reason) {
    case RejectReason::kIsaTooOld:
      return {"isa_too_old", "the CPU, the system or CLIKART_MAX_ISA lacks the instructions"};
    case RejectReason::kContractionKind:
      return {"contraction_kind", "the emitter does not serve this kind of weights"};
    case RejectReason::kDataType:
      return {"data_type", "the emitter does not serve this data type"};
    case RejectReason::kGroupTooLong:
      return {"group_too_long", "sums of so long a group of codes may not fit the integers that the emitter adds in"};
    case RejectReason::kUnevenGroups:
      return {"uneven_groups", "weight_g_idx gives groups other numbers of inputs than their size"};
    case RejectReason::kCodeTooLarge:
      return {"code_too_large", "the generated code does not fit its buffer or the registers"};
    case RejectReason::kNoLlvm:
      return {"no_llvm", "the shared object of the LLVM emitter cannot be used"};
    case RejectReason::kLlvmFailed:
      return {"llvm_failed", "LLVM did not make a kernel that can be used"};
    case RejectReason::kExecutableMemory:
      return {"executable_memory", "the system refuses executable memory"};
    case RejectReason::kDisabled:
      return {"disabled", "CLIKART_EMITTER asks for another emitter"};
  }
  return {"unknown", "unknown reason"};
}

}  // namespace

std::string_view Name(RejectReason reason) { return TextOf(reason).name; }

std::string_view Describe(RejectReason reason) { return TextOf(reason).description; }

}  // namespace clikart::codegen
