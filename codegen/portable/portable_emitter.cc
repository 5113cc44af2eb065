#include "portable_emitter.h"

#include <algorithm>
#include <string>

#include "lane_ops.h"
#include "tile.h"

namespace clikart::codegen {
namespace portable {
namespace {

using ContractFunction = void (*)(const RowBlock&, Accumulators&);

ContractFunction ContractionOf(ir::Contraction contraction) {
  switch (contraction) {
    case ir::Contraction::kFloat:
      return ContractFloat;
    case ir::Contraction::kWeightOnly:
      return ContractWeightOnly;
    case ir::Contraction::kRowInt8:
      return ContractRowInt8;
    case ir::Contraction::kInteger:
      return ContractInteger;
    case ir::Contraction::kDepthwise:
      return ContractDepthwise;
  }
  return ContractFloat;
}

template <IsaLevel kIsa>
void RunTile(const KernelImage& kernel, const TileArgs& args) {
  const ContractFunction contract = ContractionOf(kernel.spec.contraction);
  const Columns columns = TileColumns(kernel.spec, args);
  if (columns.count() <= 0) return;
  for (int64_t first = 0; first < args.rows; first += kRowBlock) {
    Accumulators accumulators(kernel.spec, std::min(kRowBlock, args.rows - first), columns);
    const RowBlock block = {kernel.spec, args, LaneOpsFor(kIsa), first, columns};
    contract(block, accumulators);
    StoreWithEpilogue(block, accumulators);
  }
}

class Portable final : public Emitter {
 public:
  std::string_view name() const override { return "portable"; }
  bool needs_executable_memory() const override { return false; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target& target) const override {
    EmittedKernel kernel;
    kernel.spec = spec;
    kernel.schedule = {.few_rows = 0, .row_block = kRowBlock, .depth_block = 0, .tile_rows = 64, .tile_panels = 16};
    kernel.emitter = std::string(name());
    kernel.entry_offsets.fill(-1);
    const bool avx2 = target.Has(Feature::kAvx2);
    kernel.isa = avx2 ? IsaLevel::kAvx2 : IsaLevel::kBaseline;
    kernel.run = avx2 ? RunTile<IsaLevel::kAvx2> : RunTile<IsaLevel::kBaseline>;
    return kernel;
  }
};

}  // namespace
}  // namespace portable

const Emitter& PortableEmitter() {
  static const portable::Portable emitter;
  return emitter;
}

}  // namespace clikart::codegen
