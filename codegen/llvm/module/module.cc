// The shared object's one exported function: a request in, a kernel's bytes out.

#include <algorithm>
#include <span>
#include <string>

#include "../llvm_api.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "compile.h"
#include "entries.h"
#include "llvm/IR/LLVMContext.h"

namespace clikart::codegen::llvm_module {
namespace {

// Builds entries of one kernel.
class Entries {
 public:
  // `step`: elements of k that are multiplied at once.
  Entries(llvm::Module& module, const ir::KernelSpec& spec, int step, const Isa& isa)
      : spec_(spec), step_(step), build_(module, isa) {}

  void Build(std::span<const MicroKind> kinds) {
    Entry(kEpilogueEntry, [&] { BuildEpilogue(build_, spec_); });
    spec_.contraction == ir::Contraction::kDepthwise ? BuildForDepthwise() : BuildForPanels(kinds);
  }

 private:
  template <typename Body>
  void Entry(int number, const Body& body) {
    build_.BeginEntry(number);
    body();
    build_.EndEntry();
  }

  void BuildForDepthwise() {
    Entry(kDepthwiseEntry, [&] { BuildDepthwise(build_, spec_.x, spec_.w, ir::kPanelLanes); });
    const int tail = static_cast<int>(spec_.n % ir::kPanelLanes);
    if (tail > 0) Entry(kDepthwiseTailEntry, [&] { BuildDepthwise(build_, spec_.x, spec_.w, tail); });
  }

  void BuildForPanels(std::span<const MicroKind> kinds) {
    const Multiply multiply = step_ == 4 ? Multiply::kDot : step_ == 2 ? Multiply::kWords : Multiply::kFma;
    Entry(kStageEntry, [&] {
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
      Entry(kWidenEntry, [&] { BuildWiden(build_, packed); });
    }
    for (const MicroKind& kind : kinds) {
      const bool is_packed = kind.form == WeightForm::kPacked;
      const Packing& weights = is_packed ? packed : widened;
      llvm::Function*& any_tile = any_tile_[is_packed];
      if (any_tile == nullptr) any_tile = BuildAnyTile(build_, is_packed ? "packed" : "widened", weights);
      Entry(MicroEntry(kind), [&] {
        if (build_.lanes() > 4) {
          BuildMicro(build_, kind.rows, kind.panels, weights, any_tile);
        } else {
          CallAnyTile(build_, any_tile, kind.rows, kind.panels, build_.getInt64(0));
        }
      });
    }
  }

  const ir::KernelSpec& spec_;
  const int step_;
  KernelBuilder build_;
  llvm::Function* any_tile_[2] = {};  // for widened and for packed weights
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
  Entries(module, *spec, request.step, isa).Build({request.micro_kinds, request.micro_kind_count});

  llvm::Expected<Image> image = Compile(module, *machine);
  if (!image) return llvm::toString(image.takeError());
  for (int number = 0; number < kMaxEntries; ++number) {
    const auto found = image->symbols.find(EntrySymbol(number));
    if (found != image->symbols.end()) sink.entry(sink.context, number, found->second);
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
