// The shared object's one exported function: a kernel's code in, its lines, loops and predictions out.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clikart/analysis/disassembly.h"
#include "clikart/analysis/kernel_loops.h"
#include "clikart/analysis/object_api.h"
#include "clikart/analysis/prediction.h"

namespace clikart::analysis {
namespace {

codegen::EmittedKernel KernelOf(const CodeRequest& code) {
  codegen::EmittedKernel kernel;
  kernel.code.assign(code.instructions, code.instructions + code.size);
  kernel.instruction_bytes = static_cast<int64_t>(code.size);
  for (const NamedRange& loop : std::span(code.loops, code.loop_count)) {
    kernel.loops.push_back({loop.name, static_cast<int32_t>(loop.begin), static_cast<int32_t>(loop.end), 0});
  }
  kernel.schedule.row_block = code.row_block;
  kernel.schedule.panel_block = code.panel_block;
  return kernel;
}

LoopAnswer AnswerOf(const KernelLoop& loop) {
  const LoopCounts& counts = loop.counts;
  return {loop.name.c_str(),   loop.range.begin,  loop.range.end,       loop.main ? 1 : 0,
          counts.instructions, counts.multiplies, counts.tile_products, counts.tile_loads,
          counts.loads,        counts.stores,     counts.stack_accesses};
}

void Refuse(const AnalysisSink& sink, const std::string& detail) { sink.refuse(sink.context, detail.c_str()); }

void SendDisassembly(const CodeRequest* code, const AnalysisSink* sink) {
  const codegen::EmittedKernel kernel = KernelOf(*code);
  const absl::StatusOr<std::vector<Line>> lines = Disassemble(kernel.code);
  if (!lines.ok()) return Refuse(*sink, std::string(lines.status().message()));
  const absl::StatusOr<std::vector<KernelLoop>> loops = LoopsOf(kernel);
  if (!loops.ok()) return Refuse(*sink, std::string(loops.status().message()));
  for (const KernelLoop& loop : *loops) {
    const LoopAnswer answer = AnswerOf(loop);
    sink->loop(sink->context, &answer);
  }
  for (const Line& line : *lines) {
    const LineAnswer answer = {line.offset, line.bytes, line.jumps_to, line.text.c_str()};
    sink->line(sink->context, &answer);
  }
}

std::string Names(std::span<const std::string_view> cpus) {
  return absl::StrJoin(cpus, ", ", [](std::string* out, std::string_view cpu) { out->append(cpu); });
}

// Whether the CPU has all that kernels of that level may consist of.
bool Has(std::string_view cpu, codegen::IsaLevel isa) { return TargetOfCpu(cpu, isa).level() == isa; }

void SendPrediction(const codegen::EmittedKernel& kernel, const KernelLoop& loop, const std::string& cpu,
                    const AnalysisSink& sink) {
  PredictionAnswer answer = {cpu.c_str(), AnswerOf(loop), 0, 0, 0, "", nullptr};
  const absl::StatusOr<Prediction> prediction = Predict(CodeOf(kernel, loop), cpu);
  const std::string problem(prediction.status().message());
  if (loop.counts.tile_products > 0) {
    answer.problem = "models know too little of tiles";
  } else if (!prediction.ok()) {
    answer.problem = problem.c_str();
  } else {
    answer.uops = prediction->uops;
    answer.cycles = prediction->cycles;
    answer.limit_cycles = prediction->limit_cycles;
    answer.bottleneck = prediction->bottleneck.c_str();
  }
  sink.prediction(sink.context, &answer);
}

void SendPredictions(const CodeRequest* code, const char* cpu, const AnalysisSink* sink) {
  const absl::StatusOr<codegen::IsaLevel> isa = codegen::ParseIsaLevel(code->isa);
  if (!isa.ok()) return Refuse(*sink, std::string(isa.status().message()));
  const codegen::EmittedKernel kernel = KernelOf(*code);
  const absl::StatusOr<std::vector<KernelLoop>> loops = LoopsOf(kernel);
  if (!loops.ok()) return Refuse(*sink, std::string(loops.status().message()));
  const bool any_cpu = *cpu == '\0';
  std::vector<std::string> cpus;
  if (any_cpu) {
    for (const std::string_view known : KnownCpus()) {
      if (Has(known, *isa)) cpus.emplace_back(known);
    }
  } else if (Has(cpu, *isa)) {
    cpus.emplace_back(cpu);
  }
  if (cpus.empty()) {
    const std::string found = any_cpu
                                  ? "no CPU of the list has the instructions"
                                  : absl::StrCat("\"", cpu, "\" is no CPU that LLVM knows to have the instructions");
    return Refuse(*sink, absl::StrCat(found, " of this kernel (", code->isa, "); the list: ", Names(KnownCpus()),
                                      "; --cpu takes LLVM's other names, too"));
  }
  for (const std::string& each : cpus) {
    for (const KernelLoop& loop : *loops) {
      if (loop.main) SendPrediction(kernel, loop, each, *sink);
    }
  }
}

}  // namespace
}  // namespace clikart::analysis

extern "C" __attribute__((visibility("default"))) const clikart::analysis::AnalysisApi* clikart_analysis_api() {
  static const clikart::analysis::AnalysisApi api = {clikart::analysis::AnalysisContract(), CLIKART_VERSION,
                                                     &clikart::analysis::SendDisassembly,
                                                     &clikart::analysis::SendPredictions};
  return &api;
}
