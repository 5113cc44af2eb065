// The shared object's one exported function: a request in, a kernel's bytes out.

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "../llvm_api.h"
#include "absl/strings/str_cat.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "code_driver.h"
#include "compile.h"
#include "entries.h"
#include "llvm/IR/LLVMContext.h"
#include "row_int8_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

// Builds entries of one kernel.
class Entries {
 public:
  // What an entry's loop is called, and the multiplications in a turn of it.
  struct Label {
    std::string name;
    int multiplies = 0;
  };

  // `step`: elements of k that are multiplied at once.
  Entries(llvm::Module& module, const ir::KernelSpec& spec, int step, const Isa& isa)
      : spec_(spec), step_(step), build_(module, isa) {}

  void Build(std::span<const MicroKind> kinds) {
    PlainEntry(kEpilogueEntry, "epilogue", [&] { BuildEpilogue(build_, spec_); });
    switch (spec_.contraction) {
      case ir::Contraction::kDepthwise:
        return BuildForDepthwise();
      case ir::Contraction::kWeightOnly:
        return BuildForCodes(kinds);
      case ir::Contraction::kRowInt8:
        return BuildForRowInt8(kinds);
      default:
        return BuildForPanels(kinds);
    }
  }

  // By the symbol of an entry, or of a function that entries share.
  const std::map<std::string, Label>& labels() const { return labels_; }

 private:
  // `body` answers how many multiplications its loop has.
  template <typename Body>
  void Entry(int number, const std::string& name, const Body& body) {
    build_.BeginEntry(number);
    labels_[EntrySymbol(number)] = {name, body()};
    build_.EndEntry();
  }
  // The same for a body without any.
  template <typename Body>
  void PlainEntry(int number, const std::string& name, const Body& body) {
    Entry(number, name, [&] {
      body();
      return 0;
    });
  }

  void BuildForDepthwise() {
    const auto entry = [&](int number, int lanes) {
      Entry(number, absl::StrCat("depthwise ", lanes, " lanes"), [&] {
        BuildDepthwise(build_, spec_.x, spec_.w, lanes);
        return kDepthwiseRows * ((lanes + build_.lanes() - 1) / build_.lanes());
      });
    };
    entry(kDepthwiseEntry, ir::kPanelLanes);
    const int tail = static_cast<int>(spec_.n % ir::kPanelLanes);
    if (tail > 0) entry(kDepthwiseTailEntry, tail);
  }

  void BuildForPanels(std::span<const MicroKind> kinds) {
    const Multiply multiply = step_ == 4 ? Multiply::kDot : step_ == 2 ? Multiply::kWords : Multiply::kFma;
    PlainEntry(kStageEntry, "stage", [&] {
      multiply == Multiply::kFma ? BuildStage(build_, spec_.x, spec_.access)
                                 : BuildStageCodes(build_, spec_.x, multiply);
    });
    const Packing packed{.dtype = spec_.w,
                         .interleave = std::max(1, ir::LayoutOf(spec_).interleave / step_),
                         .step = step_,
                         .multiply = multiply};
    const Packing widened{.multiply = multiply};
    if (std::any_of(kinds.begin(), kinds.end(),
                    [](const MicroKind& kind) { return kind.form == WeightForm::kWidened; })) {
      PlainEntry(kWidenEntry, "widen", [&] { BuildWiden(build_, packed); });
    }
    for (const MicroKind& kind : kinds) {
      const bool is_packed = kind.form == WeightForm::kPacked;
      const Packing& weights = is_packed ? packed : widened;
      llvm::Function*& any_tile = any_tile_[static_cast<int>(kind.form)];
      if (any_tile == nullptr) any_tile = BuildAnyTile(build_, is_packed ? "packed" : "widened", weights);
      const std::string name = absl::StrCat("micro ", kind.rows, "x", kind.panels, is_packed ? " packed" : " widened");
      Entry(MicroEntry(kind), name, [&] { return BuildMicroBody(kind, weights); });
    }
  }

  void BuildForCodes(std::span<const MicroKind> kinds) {
    PlainEntry(kStageEntry, "stage", [&] { BuildStage(build_, spec_.x, spec_.access); });
    if (spec_.order != ir::InputOrder::kNatural) {
      PlainEntry(kGatherEntry, "gather", [&] { BuildGather(build_, spec_.x); });
    }
    PlainEntry(kWidenEntry, "widen codes", [&] { BuildWidenCodes(build_, spec_); });
    std::vector<MicroKind> widened;
    for (const MicroKind& kind : kinds) {
      if (kind.form == WeightForm::kWidened) {
        widened.push_back(kind);
      } else {
        Entry(MicroEntry(kind), absl::StrCat("micro ", kind.rows, "x", kind.panels, " packed"),
              [&] { return BuildPackedCodes(build_, spec_, kind); });
      }
    }
    BuildForGroups(widened, Packing{},
                   [&](int64_t accumulators) { return BuildWidenedGroups(build_, spec_, accumulators); });
  }

  void BuildForRowInt8(std::span<const MicroKind> kinds) {
    if (spec_.order != ir::InputOrder::kNatural && spec_.x != ir::DType::kFloat32) {
      PlainEntry(kStageEntry, "stage", [&] { BuildStage(build_, spec_.x, spec_.access); });
    }
    PlainEntry(kQuantizeEntry, "quantize", [&] { BuildQuantizeRows(build_, spec_, step_); });
    const Multiply of_bytes = build_.isa().dot ? Multiply::kRowDot : Multiply::kBytes;
    const Packing units{.interleave = spec_.interleave / step_,
                        .step = step_,
                        .multiply = step_ == 4 ? of_bytes : Multiply::kWords,
                        .code_bits = spec_.scheme->bits};
    BuildForGroups(kinds, units,
                   [&](int64_t accumulators) { return BuildRowInt8Groups(build_, spec_, step_, accumulators); });
  }

  // Register kernels of one group, and entries that call them for each group.
  template <typename Groups>
  void BuildForGroups(std::span<const MicroKind> kinds, const Packing& weights, const Groups& build_groups) {
    any_tile_[static_cast<int>(kinds.front().form)] = BuildAnyTile(build_, "any", weights);
    int64_t accumulators = 0;
    for (const MicroKind& kind : kinds) accumulators = std::max<int64_t>(accumulators, kind.rows * kind.panels);
    llvm::Function* const groups = build_groups(accumulators * ir::kPanelLanes);
    for (const MicroKind& kind : kinds) {
      const std::string shape = absl::StrCat(kind.rows, "x", kind.panels);
      const std::string symbol = absl::StrCat("micro", shape);
      llvm::Function* const micro = build_.BeginShared(symbol, {build_.getPtrTy()});
      labels_[symbol] = {absl::StrCat("micro ", shape), BuildMicroBody(kind, weights)};
      build_.EndEntry();
      PlainEntry(MicroEntry(kind), absl::StrCat("groups ", shape), [&] {
        Value* const rows = build_.getInt64(static_cast<uint64_t>(kind.rows));
        Value* const panels = build_.getInt64(static_cast<uint64_t>(kind.panels));
        build_.CreateCall(groups, {build_.ArgumentStruct(), rows, panels, micro});
      });
    }
  }

  // Answers the multiplications of its loop.
  int BuildMicroBody(const MicroKind& kind, const Packing& weights) {
    llvm::Function* const any_tile = any_tile_[static_cast<int>(kind.form)];
    if (build_.lanes() > 4) return BuildMicro(build_, kind.rows, kind.panels, weights, any_tile);
    CallAnyTile(build_, any_tile, kind.rows, kind.panels, build_.getInt64(0));
    return 0;
  }

  std::map<std::string, Label> labels_;
  const ir::KernelSpec& spec_;
  const int step_;
  KernelBuilder build_;
  llvm::Function* any_tile_[2] = {};  // by WeightForm
};

// Answers why not, or nothing.
std::string Emit(const LlvmRequest& request, const LlvmSink& sink) {
  const auto spec = ir::KernelSpec::Parse({request.spec, request.spec_size});
  if (!spec.ok()) return std::string(spec.status().message());
  const Isa isa = IsaOf(request.features);
  const std::unique_ptr<llvm::TargetMachine> machine = MakeTargetMachine(isa);
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  Entries entries(module, *spec, request.step, isa);
  entries.Build({request.micro_kinds, request.micro_kind_count});

  llvm::Expected<Image> image = Compile(module, *machine);
  if (!image) return llvm::toString(image.takeError());
  for (int number = 0; number < kMaxEntries; ++number) {
    const auto found = image->symbols.find(EntrySymbol(number));
    if (found != image->symbols.end()) sink.entry(sink.context, number, found->second);
  }
  for (const BlockLoop& loop : image->loops) {
    const auto label = entries.labels().find(loop.function);
    if (label == entries.labels().end()) continue;
    sink.loop(sink.context, label->second.name.c_str(), loop.begin, loop.end, label->second.multiplies);
  }
  sink.code(sink.context, image->bytes.data(), image->bytes.size(), image->instruction_bytes);
  return {};
}

void EmitToSink(const LlvmRequest* request, const LlvmSink* sink) {
  const std::string refusal = Emit(*request, *sink);
  if (!refusal.empty()) sink->refuse(sink->context, refusal.c_str());
}

}  // namespace
}  // namespace clikart::codegen::llvm_module

extern "C" __attribute__((visibility("default"))) const clikart::codegen::LlvmApi* clikart_llvm_api() {
  static const clikart::codegen::LlvmApi api = {clikart::codegen::LlvmContract(), CLIKART_VERSION,
                                                &clikart::codegen::llvm_module::EmitToSink};
  return &api;
}
