#include "xbyak_emitter.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "amx/amx_kernel.h"
#include "avx2/avx2_code.h"
#include "avx512/avx512_code.h"
#include "clikart/ir/panel_layout.h"
#include "code_driver.h"
#include "code_refusal.h"
#include "code_tile_driver.h"
#include "depthwise_driver.h"
#include "panel_driver.h"
#include "row_int8_driver.h"
#include "row_int8_tile_driver.h"
#include "tile_driver.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

// Some three times what the largest kernel takes; its size does not grow with the spec's.
constexpr size_t kCodeBytes = 128 << 10;
constexpr size_t kCodeAlignment = 64;

// What a contraction is assembled with: the first form whose feature the target has.
struct Form {
  Feature feature;
  std::unique_ptr<KernelCode> (*make)(std::span<uint8_t> buffer);
  RegisterTile tile;
  Multiply multiply = Multiply::kFma;
  CodeMultiply codes = CodeMultiply::kDot;  // of kRowInt8
};

template <typename Code, typename Base = KernelCode>
std::unique_ptr<Base> Make(std::span<uint8_t> buffer) {
  return std::make_unique<Code>(buffer);
}

constexpr RegisterTile WithDepth(RegisterTile tile, int64_t depth) {
  tile.depth = depth;
  return tile;
}

constexpr Form kFloatForms[] = {
    {Feature::kAvx512, &Make<Avx512Code>, kAvx512Tile, Multiply::kFma},
    {Feature::kAvx2, &Make<Avx2Code>, kAvx2Tile, Multiply::kFma},
};
// Half the rows leave registers for the accumulators, to which short groups add so often.
constexpr Form kShortGroupForms[] = {
    {Feature::kAvx512, &Make<Avx512Code>, kAvx512ShortGroupTile, Multiply::kFma},
    {Feature::kAvx2, &Make<Avx2Code>, kAvx2Tile, Multiply::kFma},
};
constexpr int64_t kShortGroup = 64;

bool HasShortGroups(const ir::KernelSpec& spec) {
  return spec.contraction == ir::Contraction::kWeightOnly && spec.scheme->group_size > 0 &&
         spec.scheme->group_size <= kShortGroup;
}

constexpr Form kDotBf16Forms[] = {
    {Feature::kAvx512Bf16, &Make<Avx512Code>, WithDepth(kAvx512Tile, 2), Multiply::kDotBf16},
};
constexpr Form kIntegerForms[] = {
    {Feature::kAvx512Vnni, &Make<Avx512Code>, WithDepth(kAvx512Tile, 4), Multiply::kDot},
    {Feature::kAvxVnni, &Make<Avx2Code>, WithDepth(kAvx2Tile, 4), Multiply::kDot},
    {Feature::kAvx512, &Make<Avx512Code>, WithDepth(kAvx512Tile, 2), Multiply::kWords},
    {Feature::kAvx2, &Make<Avx2Code>, WithDepth(kAvx2Tile, 2), Multiply::kWords},
};
// compute="int8" with codes of a byte, and of less.
constexpr Form RowInt8Form(Feature feature, CodeMultiply codes) {
  Form form{feature, &Make<Avx2Code>, kAvx2Tile};
  if (feature == Feature::kAvx512 || feature == Feature::kAvx512Vnni) {
    form.make = &Make<Avx512Code>;
    form.tile = kAvx512CodesTile;
  }
  form.tile.depth = codes == CodeMultiply::kWords ? 2 : 4;
  form.codes = codes;
  return form;
}
constexpr Form kByteCodesForms[] = {
    RowInt8Form(Feature::kAvx512Vnni, CodeMultiply::kDot),
    RowInt8Form(Feature::kAvxVnni, CodeMultiply::kDot),
    RowInt8Form(Feature::kAvx512, CodeMultiply::kWords),
    RowInt8Form(Feature::kAvx2, CodeMultiply::kWords),
};
constexpr Form kNarrowCodesForms[] = {
    RowInt8Form(Feature::kAvx512Vnni, CodeMultiply::kDot),
    RowInt8Form(Feature::kAvxVnni, CodeMultiply::kDot),
    RowInt8Form(Feature::kAvx512, CodeMultiply::kBytes),
    RowInt8Form(Feature::kAvx2, CodeMultiply::kBytes),
};

// Of few rows where matrix tiles take many.
constexpr Form kFewRowsForm = RowInt8Form(Feature::kAvx512Vnni, CodeMultiply::kDot);

// Vectors of the spec's product, best first; none for products of matrix tiles.
std::span<const Form> FormsFor(const ir::KernelSpec& spec) {
  if (spec.contraction == ir::Contraction::kInteger) return kIntegerForms;
  switch (spec.product) {
    case ir::Product::kFma:
      if (HasShortGroups(spec)) return kShortGroupForms;
      if (spec.contraction != ir::Contraction::kRowInt8) return kFloatForms;
      return spec.scheme->bits == 8 ? kByteCodesForms : kNarrowCodesForms;
    case ir::Product::kDotBf16:
      return kDotBf16Forms;
    default:
      return {};
  }
}

class XbyakKernels final : public Emitter {
 public:
  std::string_view name() const override { return "xbyak"; }
  bool needs_executable_memory() const override { return true; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target& target) const override;
};

Packing PackingOf(const ir::KernelSpec& spec, const Schedule& schedule) {
  const auto step = static_cast<int>(schedule.step);
  return {.dtype = spec.w, .interleave = std::max(1, spec.interleave / step), .step = step};
}

void AssembleDepthwise(const Form&, KernelCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  const Packing weights = PackingOf(spec, kernel.schedule);
  auto& entries = kernel.entry_offsets;
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  entries[kDepthwiseEntry] = code.Depthwise(spec.x, weights, ir::kPanelLanes);
  if (code.DepthwisePanels() > 1) entries[kDepthwisePairEntry] = code.Depthwise(spec.x, weights, 2 * ir::kPanelLanes);
  const int tail = static_cast<int>(spec.n % ir::kPanelLanes);
  if (tail > 0) entries[kDepthwiseTailEntry] = code.Depthwise(spec.x, weights, tail);
}

void AssemblePanels(const Form& form, KernelCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  const Packing packed = PackingOf(spec, kernel.schedule);
  auto& entries = kernel.entry_offsets;
  const bool integer = spec.contraction == ir::Contraction::kInteger;
  entries[kStageEntry] =
      integer ? code.StageCodes(spec.x, form.multiply) : code.Stage(spec.x, spec.access, form.multiply);
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  if (!packed.whole() && kernel.schedule.few_rows != kDecodesAlways) entries[kWidenEntry] = code.Widen(packed);
  for (const MicroKind& kind : MicroKinds(spec, kernel.schedule)) {
    const Packing weights = kind.form == WeightForm::kPacked ? packed : Packing{};
    const bool unrolls = kind.panels >= kernel.schedule.panel_block;
    entries[MicroEntry(kind)] = code.Micro({kind.rows, kind.panels, weights, kind.form, form.multiply, unrolls});
  }
}

void AssembleRowInt8(const Form& form, KernelCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  const Schedule schedule = VectorSchedule(kernel.schedule);
  auto& entries = kernel.entry_offsets;
  if (spec.order != ir::InputOrder::kNatural && spec.x != ir::DType::kFloat32) {
    entries[kStageEntry] = code.Stage(spec.x, spec.access, Multiply::kFma);
  }
  entries[kQuantizeEntry] = code.QuantizeRows(spec, schedule);
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  for (const MicroKind& kind : RowInt8Kinds(spec, schedule)) {
    entries[MicroEntry(kind)] = code.Groups(spec, schedule, form.codes, kind.rows, kind.panels);
  }
}

void AssembleCodes(const Form& form, KernelCode& code, EmittedKernel& kernel) {
  const ir::KernelSpec& spec = kernel.spec;
  const CodeFormat format(spec);
  auto& entries = kernel.entry_offsets;
  entries[kStageEntry] = code.Stage(spec.x, spec.access, form.multiply);
  entries[kWidenEntry] = code.WidenCodes(format);
  entries[kEpilogueEntry] = code.Epilogue(spec, ir::ProgramOf(spec.activation));
  if (spec.order != ir::InputOrder::kNatural) entries[kGatherEntry] = code.Gather(spec.x);
  for (const MicroKind& kind : CodeMicroKinds(kernel.schedule)) {
    const bool packed = kind.form == WeightForm::kPacked;
    const int64_t widest = packed ? StreamedPanels(kernel.schedule, kind.rows) : kernel.schedule.panel_block;
    entries[MicroEntry(kind)] = code.CodeMicro(format, kind, kind.panels >= widest);
  }
}

// Lets `assemble` write the entries of kernel.spec with the code that `make` makes, and puts that into the kernel.
template <typename Code, typename Entries>
std::variant<EmittedKernel, Rejection> Assemble(EmittedKernel kernel, std::unique_ptr<Code> (*make)(std::span<uint8_t>),
                                                const Entries& assemble) {
  const auto memory = std::make_unique_for_overwrite<uint8_t[]>(kCodeBytes + kCodeAlignment);
  void* start = memory.get();
  size_t space = kCodeBytes + kCodeAlignment;
  std::align(kCodeAlignment, kCodeBytes, start, space);
  const std::span<uint8_t> buffer(static_cast<uint8_t*>(start), kCodeBytes);
  const std::unique_ptr<Code> code = make(buffer);
  assemble(*code, kernel);
  const size_t size = code->Finish();
  if (size == 0) {
    if (code->out_of_registers()) {
      return Rejection{RejectReason::kCodeTooLarge, "an entry asks for more registers than this instruction set has"};
    }
    return Rejection{RejectReason::kCodeTooLarge, absl::StrCat("the code does not fit ", kCodeBytes, " bytes")};
  }
  kernel.code.assign(buffer.begin(), buffer.begin() + size);
  kernel.instruction_bytes = code->instruction_bytes();
  kernel.loops = code->loops();
  return kernel;
}

Rejection TooOld(const Target& target, Feature needed) {
  return {RejectReason::kIsaTooOld,
          absl::StrCat("the target is ", target.ToString(), ", and this kernel needs ", std::string(Name(needed)))};
}

// A contraction's driver, and what writes the entries that it calls.
struct Nest {
  TileFunction run;
  void (*assemble)(const Form& form, KernelCode& code, EmittedKernel& kernel);
};

Nest NestOf(ir::Contraction contraction) {
  switch (contraction) {
    case ir::Contraction::kDepthwise:
      return {&RunDepthwise, &AssembleDepthwise};
    case ir::Contraction::kWeightOnly:
      return {&RunCodes, &AssembleCodes};
    case ir::Contraction::kRowInt8:
      return {&RunRowInt8, &AssembleRowInt8};
    default:
      return {&RunPanels, &AssemblePanels};
  }
}

// The same by matrix tiles, which bring their own schedule. Of rows of codes the few are left to dot products.
struct TileNest {
  Schedule (*schedule)(const ir::KernelSpec& spec);
  TileFunction run;
  void (*assemble)(AmxCode& code, EmittedKernel& kernel);
};

TileNest TileNestOf(ir::Contraction contraction) {
  switch (contraction) {
    case ir::Contraction::kWeightOnly:
      return {&MakeCodeTileSchedule, &RunCodeTiles, &AssembleCodeTiles};
    case ir::Contraction::kRowInt8:
      return {&MakeRowInt8TileSchedule, &RunRowInt8Tiles, [](AmxCode& code, EmittedKernel& kernel) {
                AssembleRowInt8(kFewRowsForm, code, kernel);
                AssembleRowInt8Tiles(code, kernel);
              }};
    default:
      return {&MakeTileSchedule, &RunTiles, &AssembleTiles};
  }
}

// Why tiles do not suit the groups of a spec that asks for them.
std::optional<Rejection> RefuseGroups(const ir::KernelSpec& spec) {
  if (spec.contraction == ir::Contraction::kWeightOnly && !GroupsFillTiles(*spec.scheme, spec.depth())) {
    return Rejection{RejectReason::kContractionKind,
                     absl::StrCat("groups of ", spec.scheme->group_size, " inputs, and matrix tiles take multiples of ",
                                  kPairTileSteps)};
  }
  if (spec.contraction == ir::Contraction::kRowInt8 && !GroupsSuitTiles(spec)) {
    return Rejection{RejectReason::kContractionKind,
                     absl::StrCat("groups of ", LongestGroup(spec), " inputs, and matrix tiles of bytes take at least ",
                                  kFewestGroupInputs)};
  }
  return std::nullopt;
}

std::variant<EmittedKernel, Rejection> EmitTiles(EmittedKernel kernel, const Target& target, Feature tiles) {
  const ir::KernelSpec& spec = kernel.spec;
  if (std::optional<Rejection> rejection = RefuseGroups(spec)) return *std::move(rejection);
  const bool rows_of_codes = spec.contraction == ir::Contraction::kRowInt8;
  if (rows_of_codes && !target.Has(kFewRowsForm.feature)) return TooOld(target, kFewRowsForm.feature);
  const TileNest nest = TileNestOf(spec.contraction);
  kernel.schedule = nest.schedule(spec);
  kernel.isa = LevelOf(tiles);
  kernel.run = nest.run;
  return Assemble(std::move(kernel), &Make<AmxCode, AmxCode>, nest.assemble);
}

std::variant<EmittedKernel, Rejection> XbyakKernels::Emit(const ir::KernelSpec& spec, const Target& target) const {
  const bool quantized_weights = spec.quantized_weights();
  if (quantized_weights) {
    if (std::optional<Rejection> rejection = RefuseCodes(spec)) return *std::move(rejection);
  }
  for (const ir::DType dtype : {spec.x, spec.w, spec.y}) {
    if (spec.contraction != ir::Contraction::kInteger && !quantized_weights && !ir::IsFloat(dtype)) {
      return Rejection{RejectReason::kDataType,
                       absl::StrCat(std::string(ir::Name(dtype)), ", and this emitter takes float types")};
    }
  }
  EmittedKernel kernel;
  kernel.spec = spec;
  kernel.emitter = name();
  kernel.entry_offsets.fill(-1);
  const std::optional<Feature> tiles = TileFeature(spec);
  if (tiles && target.Has(*tiles)) return EmitTiles(std::move(kernel), target, *tiles);
  const std::span<const Form> forms = FormsFor(spec);
  const auto form = std::find_if(forms.begin(), forms.end(), [&](const Form& f) { return target.Has(f.feature); });
  if (form == forms.end()) {
    return TooOld(target, forms.empty() ? *tiles : forms.back().feature);
  }
  kernel.schedule = MakeSchedule(spec, form->tile);
  kernel.isa = LevelOf(form->feature);
  const auto [run, assemble] = NestOf(spec.contraction);
  kernel.run = run;
  return Assemble(std::move(kernel), form->make,
                  [&](KernelCode& code, EmittedKernel& assembled) { assemble(*form, code, assembled); });
}

}  // namespace

const Emitter& XbyakEmitter() {
  static const XbyakKernels emitter;
  return emitter;
}

}  // namespace clikart::codegen
