// Running a kernel over a whole output: split into tiles, counted once.
#pragma once

#include <cstdint>
#include <functional>

#include "clikart/codegen/kernel.h"
#include "kernel_cache.h"

namespace clikart {

// The whole problem that a launch covers: as TileArgs, with all rows, all panels and no scratch.
struct Launch {
  const Kernel* kernel = nullptr;
  codegen::TileArgs args;  // rows and panels of the whole output
  int64_t copies = 1;      // the same kernel on `copies` slices (groups of a convolution, images of a batch)
  // Moves the whole problem's args to slice i: pointers only, before a tile is cut out. Null when
  // copies is 1.
  void (*bind)(void* context, int64_t copy, codegen::TileArgs& args) = nullptr;
  void* context = nullptr;
  // Set under per_call residency: fills `out` with panels [first, first + count) of slice `copy`.
  void (*pack)(void* context, int64_t copy, int64_t first, int64_t count, std::byte* out) = nullptr;
  int64_t panel_bytes = 0;  // of the weights, packed
};

// Splits m and n (never k) over the pool and runs the kernel; one dispatch for this thread's counters.
// Nothing is dispatched for an empty output.
void Run(const Launch& launch);

// Adds to the calling thread's counters.
void CountDispatch(const std::string& kernel);

}  // namespace clikart
