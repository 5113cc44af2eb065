// One emitter's kernel without the runtime around it, for measurements of the code alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"
#include "executable_memory.h"

namespace clikart::bench {

// A dense layer over f32 rows of 0.5, with scratch and outputs of its own; quantized weights without scales of a second
// level or an order of inputs. The program ends with a message where the emitter refuses the spec.
class KernelRunner {
 public:
  KernelRunner(std::string_view emitter, codegen::IsaLevel level, const ir::KernelSpec& spec, int64_t rows);

  // Multiplies the rows by packed weights: PackedBytes(spec), from a cache line's beginning on.
  void Run(std::span<const std::byte> weights);

 private:
  const int64_t rows_;
  std::shared_ptr<ExecutableBlock> code_;
  codegen::KernelImage image_;
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<std::byte> scratch_, prepared_;
};

int64_t PackedBytes(const ir::KernelSpec& spec);

// Weights and scales that all are zero, from a cache line's beginning on.
class ZeroBytes {
 public:
  explicit ZeroBytes(int64_t size);
  std::span<const std::byte> span() const;

 private:
  std::vector<std::byte> memory_;
};

}  // namespace clikart::bench
