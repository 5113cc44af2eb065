#include "clikart/codegen/emitter.h"

namespace clikart::codegen {

std::string_view Name(RejectReason reason) {
  switch (reason) {
    case RejectReason::kIsaTooOld: return "isa_too_old";
    case RejectReason::kContractionKind: return "contraction_kind";
    case RejectReason::kDataType: return "data_type";
    case RejectReason::kTooManyTaps: return "too_many_taps";
    case RejectReason::kNarrowGroup: return "narrow_group";
    case RejectReason::kCodeTooLarge: return "code_too_large";
    case RejectReason::kExecutableMemory: return "executable_memory";
    case RejectReason::kDisabled: return "disabled";
  }
  return "unknown";
}

}  // namespace clikart::codegen
