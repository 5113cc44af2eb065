// What this build's kernels are made by and for.
#pragma once

#include <string_view>

namespace clikart {

// A digest of everything that a kernel's code and its contract with the compiled side come from: the sources
// of ir/ and codegen/, Xbyak and the version of LLVM. Kernels of another build are never run. The same
// sources give the same identity on every machine.
std::string_view BuildIdentity();

}  // namespace clikart
