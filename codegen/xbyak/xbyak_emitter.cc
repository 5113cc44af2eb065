#include "xbyak_emitter.h"

#include <cstdint>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "avx2/avx2_code.h"
#include "clikart/ir/panel_layout.h"
#include "depthwise_driver.h"
#include "panel_driver.h"

namespace clikart::codegen {
namespace {

// Some three times what the largest kernel takes; its size does not grow with the spec's.
constexpr size_t kCodeBytes = 128 << 10;
constexpr size_t kCodeAlignment = 64;

class XbyakFloatEmitter final : public Emitter {
 public:
  std::string_view name() const override { return "xbyak"; }
  bool needs_executable_memory() const override { return true; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target& target) const override;
};

Packing PackingOf(const ir::KernelSpec& spec) { return {spec.w, ir::LayoutOf(spec).interleave}; }

void AssembleDepthwise(const ir::KernelSpec& spec, KernelCode& code, EmittedKernel& kernel) {
  auto& entries = kernel.entry_offsets;
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  entries[kDepthwiseEntry] = code.Depthwise(spec.x, PackingOf(spec), ir::kPanelLanes);
  const int tail = static_cast<int>(spec.n % ir::kPanelLanes);
  if (tail > 0) entries[kDepthwiseTailEntry] = code.Depthwise(spec.x, PackingOf(spec), tail);
}

void AssemblePanels(const ir::KernelSpec& spec, KernelCode& code, EmittedKernel& kernel) {
  auto& entries = kernel.entry_offsets;
  entries[kStageEntry] = code.Stage(spec.x, spec.access);
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  if (spec.w != ir::DType::kFloat32) entries[kWidenEntry] = code.Widen(PackingOf(spec));
  for (const MicroKind& kind : MicroKinds(spec, kernel.schedule)) {
    const Packing weights = kind.form == WeightForm::kPacked ? PackingOf(spec) : Packing{};
    entries[MicroEntry(kind)] = code.Micro({kind.rows, kind.panels, weights, kind.form});
  }
}

std::variant<EmittedKernel, Rejection> XbyakFloatEmitter::Emit(const ir::KernelSpec& spec, const Target& target) const {
  const bool depthwise = spec.contraction == ir::Contraction::kDepthwise;
  if (spec.contraction != ir::Contraction::kFloat && !depthwise) {
    return Rejection{RejectReason::kContractionKind, "quantized weights, and this emitter takes float weights"};
  }
  for (const ir::DType dtype : {spec.x, spec.w, spec.y}) {
    if (!ir::IsFloat(dtype)) {
      return Rejection{RejectReason::kDataType,
                       absl::StrCat(std::string(ir::Name(dtype)), ", and this emitter takes float types")};
    }
  }
  if (spec.product != ir::Product::kFma) {
    return Rejection{RejectReason::kProduct,
                     absl::StrCat(std::string(ir::Name(spec.product)), ", and this emitter multiplies with fma")};
  }
  if (!target.Has(Feature::kAvx2)) {
    return Rejection{RejectReason::kIsaTooOld, absl::StrCat("the target is ", target.ToString(),
                                                            ", and this emitter needs avx2 (AVX2, FMA, F16C)")};
  }

  EmittedKernel kernel;
  kernel.spec = spec;
  kernel.schedule = MakeSchedule(spec, kAvx2Tile);
  kernel.emitter = name();
  kernel.isa = IsaLevel::kAvx2;
  kernel.entry_offsets.fill(-1);
  kernel.run = depthwise ? &RunDepthwise : &RunPanels;

  const auto memory = std::make_unique_for_overwrite<uint8_t[]>(kCodeBytes + kCodeAlignment);
  void* start = memory.get();
  size_t space = kCodeBytes + kCodeAlignment;
  std::align(kCodeAlignment, kCodeBytes, start, space);
  const std::span<uint8_t> buffer(static_cast<uint8_t*>(start), kCodeBytes);
  Avx2Code code(buffer);
  (depthwise ? AssembleDepthwise : AssemblePanels)(spec, code, kernel);
  const size_t size = code.Finish();
  if (size == 0) {
    return Rejection{RejectReason::kCodeTooLarge, absl::StrCat("the code does not fit ", kCodeBytes, " bytes")};
  }
  kernel.code.assign(buffer.begin(), buffer.begin() + size);
  kernel.instruction_bytes = code.instruction_bytes();
  kernel.loops = code.loops();
  return kernel;
}

}  // namespace

const Emitter& XbyakEmitter() {
  static const XbyakFloatEmitter emitter;
  return emitter;
}

}  // namespace clikart::codegen
