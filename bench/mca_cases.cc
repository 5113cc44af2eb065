#include "mca_cases.h"

namespace clikart::bench {
namespace {

ir::KernelSpec Dense(ir::DType dtype) {
  ir::KernelSpec spec;
  spec.n = 6144;
  spec.k = 4096;
  spec.x = spec.w = spec.y = dtype;
  return spec;
}

}  // namespace

std::vector<McaCase> McaCases() {
  std::vector<McaCase> cases;
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16}) {
    cases.push_back({.spec = Dense(dtype), .level = codegen::IsaLevel::kAvx2, .goals = {}});
  }
  return cases;
}

}  // namespace clikart::bench
