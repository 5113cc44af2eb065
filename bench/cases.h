// The cases of clikart-bench by subject; each adds its rows to the report.
#pragma once

#include "limits.h"
#include "report.h"

namespace clikart::bench {

struct Context {
  const Limits& limits;
  Report& report;
  int rounds = 9;       // repetitions that medians are taken of
  int max_threads = 2;  // cases run on 1 thread and on this many
};

// Layers of K = 4096, N = 6144 against the fma peak and the read bandwidth.
void MeasureThroughput(const Context& context);
// QLinear against the peak of its own instruction and the read bandwidth.
void MeasureInteger(const Context& context);
// QLinearWoQ with compute="int8" against the read bandwidth and against a Linear of the same work.
void MeasureRowInt8(const Context& context);
// QLinearWoQ with float inputs against the read bandwidth and a Linear.
void MeasureCodes(const Context& context);
// Quantizing a Linear: the time of a weight by scheme and search.
void MeasureQuantize(const Context& context);
// A depthwise convolution against the fma peak.
void MeasureDepthwise(const Context& context);
// Activations over the bare kernel.
void MeasureEpilogues(const Context& context);
// A forward of a tiny layer, less its kernel.
void MeasureCallOverhead(const Context& context);
// Code generation, for a spread of specs.
void MeasureEmission(const Context& context);
// A kernel from an emitter, from disk and from memory.
void MeasureCache(const Context& context);

// The LLVM emitter: time to compile, and its kernels beside the fast path's.
void MeasureLlvm(const Context& context);

}  // namespace clikart::bench
