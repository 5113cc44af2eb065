// Questions about a record that reading it needs answered.
#pragma once

#include "clikart/codegen/target.h"

namespace clikart::codegen {

// XGETBV may be executed.
bool HasOsxsave(const CpuidRecord& cpuid);

// Some use of tiles would be possible if the system said yes.
bool OnlyTilePermissionLacks(const CpuidRecord& cpuid);

}  // namespace clikart::codegen
