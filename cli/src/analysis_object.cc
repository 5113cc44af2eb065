#include "analysis_object.h"

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/codegen/shared_object.h"

namespace clikart::cli {
namespace {

using analysis::AnalysisApi;
using analysis::AnalysisSink;

// A size by its name in "few_rows=48 row_block=6"; 0 where the schedule has none.
int64_t SizeIn(const std::string& schedule, std::string_view name) {
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(schedule, ' '))) {
    int64_t value = 0;
    if (word.starts_with(std::string(name) + "=") && absl::SimpleAtoi(word.substr(name.size() + 1), &value)) {
      return value;
    }
  }
  return 0;
}

// An entry as the object takes it, good while the entry is.
class Request {
 public:
  explicit Request(const cache::Entry& entry) {
    for (const cache::Loop& loop : entry.loops) loops_.push_back({loop.name.c_str(), loop.begin, loop.end});
    code_ = {entry.code.data(), static_cast<size_t>(entry.instruction_bytes), loops_.data(),
             loops_.size(),     SizeIn(entry.schedule, "row_block"),          SizeIn(entry.schedule, "panel_block"),
             entry.isa.c_str()};
  }
  const analysis::CodeRequest* get() const { return &code_; }

 private:
  std::vector<analysis::NamedRange> loops_;
  analysis::CodeRequest code_ = {};
};

// What comes back through the sink.
struct Answers {
  Disassembly code;
  std::vector<LoopPrediction> predictions;
  std::string refusal;

  static Answers& Of(void* context) { return *static_cast<Answers*>(context); }
  static CodeLoop LoopOf(const analysis::LoopAnswer& loop) {
    return {loop.name,          loop.begin,      loop.end,   loop.main != 0, loop.instructions,  loop.multiplies,
            loop.tile_products, loop.tile_loads, loop.loads, loop.stores,    loop.stack_accesses};
  }
  static void TakeLine(void* context, const analysis::LineAnswer* line) {
    CodeLine taken{.offset = line->offset, .bytes = line->bytes, .jumps_to = std::nullopt, .text = line->text};
    if (line->jumps_to >= 0) taken.jumps_to = line->jumps_to;
    Of(context).code.lines.push_back(std::move(taken));
  }
  static void TakeLoop(void* context, const analysis::LoopAnswer* loop) {
    Of(context).code.loops.push_back(LoopOf(*loop));
  }
  static void TakePrediction(void* context, const analysis::PredictionAnswer* answer) {
    Of(context).predictions.push_back({answer->cpu, LoopOf(answer->loop), answer->uops, answer->cycles,
                                       answer->limit_cycles, answer->bottleneck,
                                       answer->problem == nullptr ? "" : answer->problem});
  }
  static void TakeRefusal(void* context, const char* detail) { Of(context).refusal = detail; }
  AnalysisSink Sink() { return {this, &TakeLine, &TakeLoop, &TakePrediction, &TakeRefusal}; }
};

}  // namespace

absl::StatusOr<AnalysisObject> AnalysisObject::Load(const char* file) {
  const absl::StatusOr<void*> function = codegen::FindInObject(file, analysis::kAnalysisApiFunction);
  if (!function.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this command needs LLVM, which comes with ", file,
                     " (built where LLVM 19 is there, CLIKART_LLVM=ON insists on it): ", function.status().message()));
  }
  const AnalysisApi* const api = reinterpret_cast<analysis::AnalysisApiFunction>(*function)();
  if (api->contract != analysis::AnalysisContract() || std::string_view(api->version) != CLIKART_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(file, " belongs to version ", api->version,
                                                      " or another build of the library, which is ", CLIKART_VERSION));
  }
  return AnalysisObject(api);
}

absl::StatusOr<Disassembly> AnalysisObject::Disassemble(const cache::Entry& entry) const {
  Answers answers;
  const AnalysisSink sink = answers.Sink();
  api_->disassemble(Request(entry).get(), &sink);
  if (!answers.refusal.empty()) return absl::DataLossError(answers.refusal);
  return std::move(answers.code);
}

absl::StatusOr<std::vector<LoopPrediction>> AnalysisObject::Predict(const cache::Entry& entry,
                                                                    const std::string& cpu) const {
  Answers answers;
  const AnalysisSink sink = answers.Sink();
  api_->predict(Request(entry).get(), cpu.c_str(), &sink);
  if (!answers.refusal.empty()) return absl::InvalidArgumentError(answers.refusal);
  return std::move(answers.predictions);
}

}  // namespace clikart::cli
