#include "code_refusal.h"

#include "absl/strings/str_cat.h"
#include "row_int8_driver.h"

namespace clikart::codegen {

std::optional<Rejection> RefuseCodes(const ir::KernelSpec& spec) {
  if (!spec.scheme.has_value()) {
    return Rejection{RejectReason::kContractionKind, "quantized weights of no scheme, and this emitter asks for one"};
  }
  if (spec.order == ir::InputOrder::kUneven) {
    return Rejection{RejectReason::kUnevenGroups, "groups of any size, and this emitter takes groups of one size"};
  }
  if (spec.contraction == ir::Contraction::kWeightOnly) return std::nullopt;
  const int64_t longest = LongestGroup(spec), deepest = DeepestGroup(*spec.scheme);
  if (longest <= deepest) return std::nullopt;
  return Rejection{RejectReason::kGroupTooLong,
                   absl::StrCat("groups of ", longest, " inputs, and this emitter adds up to ", deepest)};
}

}  // namespace clikart::codegen
