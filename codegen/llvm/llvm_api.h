// The seam between the library and the shared object that holds LLVM: one exported function, plain C types.
//
// Texts and numbers cross it, no C++ object: the two sides may come from different builds, and then must find
// out rather than misread each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "code_driver.h"
#include "depthwise_driver.h"
#include "panel_driver.h"
#include "row_int8_driver.h"

namespace clikart::codegen {

inline constexpr const char* kLlvmObject = "libclikart_llvm.so";
inline constexpr const char* kLlvmApiFunction = "clikart_llvm_api";

extern "C" {

struct LlvmRequest {
  const char* spec;  // KernelSpec::ToString, with its length
  size_t spec_size;
  uint32_t features;  // bit i: Feature i
  int32_t step;       // Schedule::step
  const MicroKind* micro_kinds;
  size_t micro_kind_count;
};

// Where an answer goes: exactly one call of `code` or of `refuse`, `entry` and `loop` before it for each of them.
struct LlvmSink {
  void* context;
  void (*entry)(void* context, int32_t number, int32_t offset);
  void (*loop)(void* context, const char* name, int32_t begin, int32_t end, int64_t multiplies);
  void (*code)(void* context, const uint8_t* bytes, size_t size, size_t instruction_bytes);
  void (*refuse)(void* context, const char* detail);
};

struct LlvmApi {
  uint64_t contract;    // LlvmContract()
  const char* version;  // of the library that the object belongs to
  void (*emit)(const LlvmRequest* request, const LlvmSink* sink);
};

}  // extern "C"

// Changes with everything that generated code and drivers have agreed on without a text saying so. Bump the
// first number where the meaning of something changes and its size does not.
constexpr uint64_t LlvmContract() {
  uint64_t hash = 2;
  for (const uint64_t size :
       {sizeof(MicroArgs), sizeof(StageArgs), sizeof(WidenArgs), sizeof(EpilogueArgs), sizeof(DepthwiseArgs),
        sizeof(QuantizeArgs), sizeof(GroupsArgs), sizeof(CodeMicroArgs), sizeof(WidenCodesArgs), sizeof(GatherArgs),
        sizeof(MicroKind), sizeof(LlvmRequest), sizeof(LlvmSink), sizeof(PanelTerms), sizeof(Requantization),
        uint64_t{kMicroUnroll}, uint64_t{kDepthwiseRows}, uint64_t{kMaxEntries}}) {
    hash = (hash ^ size) * 0x100000001b3;
  }
  return hash;
}

using LlvmApiFunction = const LlvmApi* (*)();

}  // namespace clikart::codegen
