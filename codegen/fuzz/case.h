// One check of one kernel, as a value that a line of text can bring back.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"
#include "kernel_testing.h"

namespace clikart::codegen {

struct Case {
  ir::KernelSpec spec;
  int64_t rows = 1;
  Values values = Values::kOrdinary;
  uint64_t seed = 0;  // of the values, and of how quantized rows are cut into parts
  int64_t tile_rows = 1, tile_panels = 1;
  GuardedBuffer::Edge edge = GuardedBuffer::Edge::kEnd;
  std::string emitter;
  Target target;

  // "<spec> rows=7 values=extreme seed=12 tile=3x1 edge=end emitter=xbyak target=sse42+avx2"
  std::string ToString() const;
  static absl::StatusOr<Case> Parse(std::string_view text);
};

// Multiplications that a random case costs at most.
struct Effort {
  int64_t products = 2'000'000;
};

// A spec that Verify() accepts, multiplied by what the target has for it.
ir::KernelSpec RandomSpec(const Target& target, Effort effort, std::mt19937_64& random);
// `c` with other rows, values and tiles: the same kernel meets other data.
Case WithRandomRun(Case c, Effort effort, std::mt19937_64& random);

// Cases that are a little simpler than `c`, the boldest first. What fails as well takes its place.
std::vector<Case> Simpler(const Case& c);

// RunQuant runs it, not RunGuarded.
bool IsQuantized(const ir::KernelSpec& spec);

// How a quantized case's n rows are cut into parts.
std::vector<int64_t> PartRows(const Case& c);

}  // namespace clikart::codegen
