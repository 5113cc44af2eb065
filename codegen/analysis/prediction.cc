#include "clikart/analysis/prediction.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/MCA/Context.h>
#include <llvm/MCA/CustomBehaviour.h>
#include <llvm/MCA/HWEventListener.h>
#include <llvm/MCA/InstrBuilder.h>
#include <llvm/MCA/Pipeline.h>
#include <llvm/MCA/SourceMgr.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "counts.h"
#include "decoder.h"

namespace clikart::analysis {
namespace {

namespace mca = llvm::mca;

constexpr std::array<std::string_view, 4> kCpus = {"skylake-avx512", "icelake-server", "sapphirerapids", "znver4"};

constexpr unsigned kWarmIterations = 50;  // until the schedulers are as full as they get
constexpr unsigned kIterations = 100;     // that are counted, behind those
// What is busy for this part of the time is what the loop waits for.
constexpr double kBusy = 0.9;
// A call does not occur in a loop; the builder wants its latency all the same.
constexpr unsigned kCallLatency = 100;

// Looks on while a pipeline runs, and sums up what it was busy with once it was warm.
class Listener final : public mca::HWEventListener {
 public:
  using Unit = std::pair<uint64_t, uint64_t>;  // a resource of the model, and a bit for which of its units

  // Warm is when the instruction of that number, counted over all iterations, retires.
  explicit Listener(size_t last_warm) : last_warm_(last_warm) {}

  void onCycleBegin() override {
    if (warm_) ++cycles_;
  }
  void onEvent(const mca::HWInstructionEvent& event) override {
    if (event.Type == mca::HWInstructionEvent::Retired && event.IR.getSourceIndex() == last_warm_) warm_ = true;
    if (event.Type != mca::HWInstructionEvent::Issued || !warm_) return;
    for (const auto& [unit, cycles] : static_cast<const mca::HWInstructionIssuedEvent&>(event).UsedResources) {
      busy_[unit] += cycles;
    }
  }
  void onEvent(const mca::HWPressureEvent& event) override {
    if (event.Reason == mca::HWPressureEvent::REGISTER_DEPS) ++waits_for_registers_;
    if (event.Reason == mca::HWPressureEvent::MEMORY_DEPS) ++waits_for_memory_;
  }
  using HWEventListener::onEvent;

  double cycles() const { return static_cast<double>(cycles_); }
  const std::map<Unit, double>& busy() const { return busy_; }  // cycles
  bool waits_for_memory() const { return waits_for_memory_ > waits_for_registers_; }

 private:
  const size_t last_warm_;
  bool warm_ = false;
  int64_t cycles_ = 0;
  std::map<Unit, double> busy_;
  int64_t waits_for_registers_ = 0;
  int64_t waits_for_memory_ = 0;
};

absl::Status Failure(const std::string& what, llvm::Error error) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", llvm::toString(std::move(error))));
}

// Fills in the prediction's micro-operations, too.
absl::Status Simulate(const Decoder& decoder, const std::vector<Decoded>& loop, Listener& listener,
                      Prediction& prediction) {
  mca::InstrumentManager instruments(decoder.cpu(), decoder.instructions());
  mca::InstrBuilder builder(decoder.cpu(), decoder.instructions(), decoder.registers(), &decoder.jumps(), instruments,
                            kCallLatency);
  const std::unique_ptr<mca::InstrPostProcess> post(
      decoder.target().createInstrPostProcess(decoder.cpu(), decoder.instructions()));
  std::vector<std::unique_ptr<mca::Instruction>> sequence;
  for (const Decoded& each : loop) {
    auto lowered = builder.createInstruction(each.instruction, {});
    if (!lowered) return Failure(decoder.Print(each), lowered.takeError());
    post->postProcessInstruction(*lowered, each.instruction);
    prediction.uops += static_cast<int>((*lowered)->getNumMicroOps());
    sequence.push_back(std::move(*lowered));
  }
  mca::CircularSourceMgr source(sequence, kWarmIterations + kIterations);
  mca::CustomBehaviour behaviour(decoder.cpu(), source, decoder.instructions());
  mca::Context context(decoder.registers(), decoder.cpu());
  // Zeros stand for the model's own sizes.
  const mca::PipelineOptions options(/*UOPQSize=*/0, /*DecThr=*/0, /*DW=*/0, /*RFS=*/0, /*LQS=*/0, /*SQS=*/0,
                                     /*NoAlias=*/true, /*ShouldEnableBottleneckAnalysis=*/true);
  const auto pipeline = context.createDefaultPipeline(options, source, behaviour);
  pipeline->addEventListener(&listener);
  if (auto cycles = pipeline->run(); !cycles) return Failure("simulation", cycles.takeError());
  return absl::OkStatus();
}

// Models charge a broadcast from memory, and Skylake's and Ice Lake's a plain EVEX load, with a vector
// operation too, though not where the same operand is part of an fma. CPUs have the units that load do it all
// (measured on Zen 5; for Intel's see https://github.com/andreas-abel/uiCA/issues/7). A streaming load is what models
// take for a load and nothing else, so those are simulated as such.
constexpr std::array<std::string_view, 6> kLoads = {"VMOVUPS",   "VMOVAPS",      "VMOVDQU32",
                                                    "VMOVDQU64", "VBROADCASTSS", "VPBROADCASTD"};
constexpr std::array<std::string_view, 3> kWidths = {"Yrm", "Z256rm", "Zrm"};

llvm::MCInst AsPureLoad(const Decoder& decoder, llvm::MCInst instruction) {
  const std::string_view name = decoder.Opcode(instruction);
  for (const std::string_view load : kLoads) {
    for (const std::string_view width : kWidths) {
      if (name != std::string(load).append(width)) continue;
      instruction.setOpcode(decoder.OpcodeOf(std::string("VMOVNTDQA").append(width)));
    }
  }
  return instruction;
}

// Cycles of one such instruction after another on all the ports that take it.
double CyclesAlone(const Decoder& decoder, const llvm::MCInst& instruction) {
  const unsigned number = decoder.instructions().get(instruction.getOpcode()).getSchedClass();
  return llvm::MCSchedModel::getReciprocalThroughput(decoder.cpu(),
                                                     *decoder.cpu().getSchedModel().getSchedClassDesc(number));
}

std::string UnitName(const llvm::MCSchedModel& model, const Listener::Unit& unit) {
  const llvm::MCProcResourceDesc& resource = *model.getProcResource(static_cast<unsigned>(unit.first));
  std::string name = resource.Name;
  if (resource.NumUnits > 1) absl::StrAppend(&name, ".", llvm::Log2_64(unit.second));
  return name;
}

std::string Bottleneck(const llvm::MCSchedModel& model, const Prediction& prediction, const Listener& listener) {
  std::string busiest;
  double busy = 0;
  for (const auto& [unit, cycles] : listener.busy()) {
    if (cycles / listener.cycles() <= busy) continue;
    busy = cycles / listener.cycles();
    busiest = UnitName(model, unit);
  }
  const double dispatch = prediction.uops / (prediction.cycles * model.IssueWidth);
  if (std::max(busy, dispatch) < kBusy) {
    const char* const reason = listener.waits_for_memory() ? "stores before loads" : "latency";
    return absl::StrFormat("%s (%s %.0f %%)", reason, busiest, 100 * busy);
  }
  if (dispatch > busy) return absl::StrFormat("dispatch %.0f %%", 100 * dispatch);
  return absl::StrFormat("%s %.0f %%", busiest, 100 * busy);
}

// Asked of no CPU in particular, because LLVM complains aloud about a name that it does not know.
bool IsKnown(std::string_view cpu) {
  return Decoder("").cpu().isCPUStringValid(llvm::StringRef(cpu.data(), cpu.size()));
}

}  // namespace

std::span<const std::string_view> KnownCpus() { return kCpus; }

bool CpuHas(std::string_view cpu, std::string_view features) {
  return IsKnown(cpu) && Decoder(cpu).cpu().checkFeatures(std::string(features));
}

absl::StatusOr<Prediction> Predict(std::span<const uint8_t> code, std::string_view cpu) {
  const std::string known(IsKnown(cpu) ? cpu : "");
  const Decoder decoder(known);
  const llvm::MCSchedModel& model = decoder.cpu().getSchedModel();
  if (known.empty() || !model.hasInstrSchedModel()) {
    return absl::InvalidArgumentError(absl::StrCat("LLVM has no scheduling model of a CPU \"", std::string(cpu), "\""));
  }
  auto loop = decoder.Decode(code);
  if (!loop.ok()) return loop.status();

  Prediction prediction;
  prediction.counts = Count(decoder, *loop);
  for (Decoded& each : *loop) {
    each.instruction = AsPureLoad(decoder, std::move(each.instruction));
    if (IsMultiply(decoder.Opcode(each.instruction))) prediction.limit_cycles += CyclesAlone(decoder, each.instruction);
  }
  Listener listener(kWarmIterations * loop->size() - 1);
  if (absl::Status status = Simulate(decoder, *loop, listener, prediction); !status.ok()) return status;
  prediction.cycles = listener.cycles() / kIterations;
  prediction.bottleneck = Bottleneck(model, prediction, listener);
  return prediction;
}

}  // namespace clikart::analysis
