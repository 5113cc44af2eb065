// GDB's interface for generated code: an object in memory for each kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "clikart/codegen/kernel.h"

namespace clikart {

// Shows `kernel` at `code` to a debugger, attached now or later, as long as the answer lives: its entry points
// as "<signature>:entry_<number>". Null where the kernel has no driver with a name, as in tests.
std::shared_ptr<void> ListForGdb(const std::string& signature, const codegen::EmittedKernel& kernel,
                                 const uint8_t* code);

// For pthread_atfork.
std::mutex& GdbListMutex();

}  // namespace clikart
