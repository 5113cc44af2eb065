// Why a system may refuse executable memory.
#pragma once

#include <string>

namespace clikart {

// The policies in force for this process, for a message: "PR_SET_MDWE (...), a seccomp filter"; empty where none
// that is known is.
std::string MemoryPoliciesInForce();

}  // namespace clikart
