// The seam between clikart-cache and the shared object that holds LLVM's disassembler and scheduling models: one
// exported function, plain C types. No C++ object crosses it, for the two sides may come from different builds, and
// then must find out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clikart::analysis {

inline constexpr const char* kAnalysisObject = "libclikart_analysis.so";
inline constexpr const char* kAnalysisApiFunction = "clikart_analysis_api";

extern "C" {

struct NamedRange {
  const char* name;
  int64_t begin, end;  // bytes of the code
};

// A kernel's code, as a cache entry has it.
struct CodeRequest {
  const uint8_t* instructions;
  size_t size;
  const NamedRange* loops;  // that the emitter named
  size_t loop_count;
  int64_t row_block, panel_block;  // of the schedule: whose tile is the main loop's
  const char* isa;                 // the level that has all the instructions
};

struct LineAnswer {
  int64_t offset, bytes;
  int64_t jumps_to;  // -1: nowhere
  const char* text;
};

// An inner loop, one iteration of it.
struct LoopAnswer {
  const char* name;
  int64_t begin, end;
  int32_t main;  // whether with many rows nearly all time is spent here
  int32_t instructions, multiplies, tile_products, tile_loads, loads, stores, stack_accesses;
};

// `problem` is null, or says why the model cannot tell.
struct PredictionAnswer {
  const char* cpu;
  LoopAnswer loop;
  int32_t uops;
  double cycles, limit_cycles;
  const char* bottleneck;
  const char* problem;
};

// Texts are good until a function returns. Either what was asked for comes, or one call of `refuse`.
struct AnalysisSink {
  void* context;
  void (*line)(void* context, const LineAnswer* line);
  void (*loop)(void* context, const LoopAnswer* loop);
  void (*prediction)(void* context, const PredictionAnswer* prediction);
  void (*refuse)(void* context, const char* detail);
};

struct AnalysisApi {
  uint64_t contract;    // AnalysisContract()
  const char* version;  // of the library that the object belongs to
  // Every loop, then every line.
  void (*disassemble)(const CodeRequest* code, const AnalysisSink* sink);
  // The main loops on `cpu`; empty: on each CPU of a small list that has the instructions.
  void (*predict)(const CodeRequest* code, const char* cpu, const AnalysisSink* sink);
};

}  // extern "C"

// Bump the first number where the meaning of something changes and its size does not.
constexpr uint64_t AnalysisContract() {
  uint64_t hash = 1;
  for (const uint64_t size : {sizeof(CodeRequest), sizeof(LineAnswer), sizeof(LoopAnswer), sizeof(PredictionAnswer),
                              sizeof(AnalysisSink), sizeof(AnalysisApi)}) {
    hash = (hash ^ size) * 0x100000001b3;
  }
  return hash;
}

using AnalysisApiFunction = const AnalysisApi* (*)();

}  // namespace clikart::analysis
