// What a kernel is for, apart from the machine that it is made for.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "clikart/codegen/product.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart {

// The spec that a layer asks for on `target` under `math`, from the one that it asked for anywhere.
ir::KernelSpec SpecFor(ir::KernelSpec spec, const codegen::Target& target, codegen::MathMode math);

// The one spec that stands for all of those: what SpecFor gives for the plainest machine.
ir::KernelSpec IntentOf(const ir::KernelSpec& spec);

// "kind=float n=64 k=64 x=f32 w=f32 y=f32 act=gelu": the words of KernelSpec::ToString less what SpecFor decides, less
// the fingerprint of the activation's formula (another version's manifest means the activation), and less what is as
// in a default spec.
std::string IntentText(const ir::KernelSpec& intent);
// In any order; words of a whole signature are understood, too, and what SpecFor decides is skipped. InvalidArgument
// says which word is unknown, double or missing, or what is wrong with its value.
absl::StatusOr<ir::KernelSpec> ParseIntent(std::string_view text);

}  // namespace clikart
