// Questions about a record that reading it needs answered.
#pragma once

#include "clikart/codegen/target.h"

namespace clikart::codegen {

// The feature that this one stands on: a CPU without that one is not taken to have it. Itself for the lowest.
Feature Below(Feature feature);

// XGETBV may be executed.
bool HasOsxsave(const CpuidRecord& cpuid);

// Some use of tiles would be possible if the system said yes.
bool OnlyTilePermissionLacks(const CpuidRecord& cpuid);

}  // namespace clikart::codegen
