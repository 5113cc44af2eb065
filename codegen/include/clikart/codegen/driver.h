// The compiled drivers of generated code by name: a kernel that is kept outside of the process names its own.
#pragma once

#include <span>
#include <string_view>

#include "clikart/codegen/kernel.h"

namespace clikart::codegen {

struct Driver {
  std::string_view name;
  TileFunction run;
};

// Every driver that an emitter of code gives its kernels.
std::span<const Driver> Drivers();

// Of so many rows; 0 for kernels whose tiles read x itself.
int64_t PreparedBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows);
int64_t PrepareScratchBytes(const KernelImage& kernel);
void PrepareRows(const KernelImage& kernel, const PrepareArgs& args);

}  // namespace clikart::codegen
