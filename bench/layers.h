// What the benchmarks of layers share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/clikart.h"
#include "clikart/codegen/target.h"
#include "limits.h"

namespace clikart::bench {

inline constexpr int64_t kInputs = 4096;
inline constexpr int64_t kOutputs = 6144;
// Weights that a few rows stream are read from several layers in turn, so that none stays in a cache.
inline constexpr int64_t kStreamBytes = int64_t{256} << 20;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "clikart-bench: %s\n", std::string(value.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// This machine as the runtime has it: CLIKART_MAX_ISA caps what both use.
inline codegen::Target UsedTarget() {
  const char* const cap = std::getenv("CLIKART_MAX_ISA");
  const codegen::IsaLevel level = cap == nullptr ? codegen::kWidestIsa : Must(codegen::ParseIsaLevel(cap));
  return codegen::Detect(codegen::CpuidRecord::Host(level), level);
}

inline void UseThreads(int threads) {
  if (!SetNumThreads(threads).ok()) std::abort();
}

// Small numbers of both signs: sums stay finite and the arithmetic ordinary.
Tensor Values(const Shape& shape, DType dtype);
// Without a bias, packed and compiled.
std::shared_ptr<Linear> MakeLinear(int64_t inputs, int64_t outputs, DType dtype, Activation activation);

// Seconds of one forward, each layer in turn `repeats` times.
template <typename Layer>
double Forwards(const std::vector<std::shared_ptr<Layer>>& layers, const Tensor& x, int repeats, int threads) {
  const double seconds = Seconds(threads, [&] {
    for (int i = 0; i < repeats; ++i) {
      for (const auto& layer : layers) Must(layer->Forward(x));
    }
  });
  return seconds / (repeats * static_cast<double>(layers.size()));
}

}  // namespace clikart::bench
