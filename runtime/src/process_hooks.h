// What the library asks of the process that loads it.
#pragma once

#include <atomic>
#include <cstdint>

namespace clikart {

// A child of a fork counts one more than its parent. A lock that another number holds is one of the parent's threads',
// which the child does not have.
inline std::atomic<uint32_t> g_process_number{1};
inline uint32_t ProcessNumber() { return g_process_number.load(std::memory_order_relaxed); }

// Registers the handlers of forks, and keeps the library loaded: its threads run its code until the process
// ends. Called when the library is loaded, for a handler that a thread registers while another one forks does
// not run in that fork.
int InstallProcessHooks();

}  // namespace clikart
