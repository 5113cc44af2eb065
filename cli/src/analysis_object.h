// What LLVM says of a kernel's code, asked of an object that is loaded when it is first needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/analysis/object_api.h"
#include "clikart/cache/entry.h"

namespace clikart::cli {

struct CodeLine {
  int64_t offset = 0, bytes = 0;
  std::optional<int64_t> jumps_to;
  std::string text;
};

// One iteration of an inner loop.
struct CodeLoop {
  std::string name;
  int64_t begin = 0, end = 0;
  bool main = false;  // with many rows nearly all time is spent in such loops
  int instructions = 0, multiplies = 0, tile_products = 0, tile_loads = 0, loads = 0, stores = 0, stack_accesses = 0;
};

struct Disassembly {
  std::vector<CodeLoop> loops;
  std::vector<CodeLine> lines;
};

struct LoopPrediction {
  std::string cpu;
  CodeLoop loop;
  int uops = 0;
  double cycles = 0;        // of an iteration
  double limit_cycles = 0;  // of its multiplications alone
  std::string bottleneck;
  std::string problem;  // why the model cannot tell; else empty
};

class AnalysisObject {
 public:
  // FailedPrecondition says what is missing and how to get it.
  static absl::StatusOr<AnalysisObject> Load(const char* file = analysis::kAnalysisObject);

  // DataLoss where bytes are no instruction.
  absl::StatusOr<Disassembly> Disassemble(const cache::Entry& entry) const;
  // Its main loops on that CPU; on some well-known ones that have the instructions where the name is empty.
  // InvalidArgument where LLVM does not know the CPU, or it lacks instructions.
  absl::StatusOr<std::vector<LoopPrediction>> Predict(const cache::Entry& entry, const std::string& cpu) const;

 private:
  explicit AnalysisObject(const analysis::AnalysisApi* api) : api_(api) {}
  const analysis::AnalysisApi* api_;
};

}  // namespace clikart::cli
