// Where generated code lies and what it is, told to profilers and debuggers (docs/profiling.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "clikart/codegen/kernel.h"

namespace clikart {

// CLIKART_PERF_MAP: who is told.
struct CodeListing {
  bool perf_map = false;        // perf, by a line in /tmp/perf-<pid>.map
  bool jitdump = false;         // perf, by a record with the code in a jit-<pid>.dump
  bool gdb = false;             // gdb, by an object in memory
  std::string folder = "/tmp";  // CLIKART_PERF_DIR: where a jitdump is made, in a folder of its own

  bool any() const { return perf_map || jitdump || gdb; }
};

// `kernel` lies at `code` under the name `signature`. The answer has to live as long as the code. Trouble is
// one warning: an aid of a profiler is no reason to fail.
std::shared_ptr<void> ListCode(const CodeListing& listing, const std::string& signature,
                               const codegen::EmittedKernel& kernel, const uint8_t* code);

}  // namespace clikart
