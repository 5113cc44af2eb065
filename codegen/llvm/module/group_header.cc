#include "group_header.h"

#include "clikart/ir/decoding.h"
#include "program.h"

namespace clikart::codegen::llvm_module {
namespace {

Value* LoadScaleLanes(KernelBuilder& build, const ir::QuantScheme& scheme, Value* from) {
  if (!ir::IsByteScale(scheme.scale_type)) return build.LoadWidened(scheme.ScaleDType(), from, build.lanes());
  Value* const input = build.CreateBitCast(LoadBytes(build, from, false), build.Floats(build.lanes()));
  return LowerProgram(build, ir::ScaleProgramOf(scheme.scale_type), {&input, 1});
}

}  // namespace

Value* LoadBytes(KernelBuilder& build, Value* from, bool is_signed) {
  Value* const bytes = build.LoadVector(build.Elements(ir::DType::kUInt8, build.lanes()), from);
  llvm::Type* const ints = build.Ints(build.lanes());
  return is_signed ? build.CreateSExt(bytes, ints) : build.CreateZExt(bytes, ints);
}

Values LoadScales(KernelBuilder& build, const ir::CodeLayout& layout, Value* header) {
  Values vectors;
  for (int64_t lane = 0; lane < ir::kPanelLanes; lane += build.lanes()) {
    vectors.push_back(LoadScaleLanes(build, layout.scheme, build.At(header, layout.ScaleAt(lane))));
  }
  return vectors;
}

Values LoadWholeScales(KernelBuilder& build, const ir::CodeLayout& layout, Value* header, Value* factors) {
  Values scales = LoadScales(build, layout, header);
  if (factors == nullptr) return scales;
  const Values second = build.LoadPanelLanes(build.Floats(build.lanes()), factors);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = build.CreateFMul(scales[i], second[i]);
  return scales;
}

Values LoadMinimums(KernelBuilder& build, const ir::CodeLayout& layout, Value* header) {
  Values vectors;
  for (int64_t lane = 0; lane < ir::kPanelLanes; lane += build.lanes()) {
    vectors.push_back(LoadScaleLanes(build, layout.scheme, build.At(header, layout.MinimumAt(lane))));
  }
  return vectors;
}

Values LoadZeroPoints(KernelBuilder& build, const ir::CodeLayout& layout, Value* header) {
  Values vectors;
  if (!layout.scheme.HasZeroPoint()) return vectors;
  for (int64_t lane = 0; lane < ir::kPanelLanes; lane += build.lanes()) {
    vectors.push_back(LoadBytes(build, build.At(header, layout.ZeroPointAt(lane)), false));
  }
  return vectors;
}

}  // namespace clikart::codegen::llvm_module
