#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cases.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/product.h"

namespace clikart::bench {

void MeasureEmission(const Context& context) {
  context.report.Section("Generating code (xbyak, microseconds)");
  const codegen::Emitter* const emitter = codegen::FindEmitter("xbyak");
  const codegen::Target target = codegen::TargetOf(codegen::IsaLevel::kAvx512);
  double slowest = 0;
  std::string slowest_name;
  for (const ir::Activation activation : ir::AllActivations()) {
    for (const ir::DType w : {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16}) {
      for (const ir::Access access : {ir::Access::kDense, ir::Access::kIndirect}) {
        ir::KernelSpec spec;
        spec.n = 6144;
        spec.k = 4096;
        spec.taps = access == ir::Access::kIndirect ? 769 : 1;
        spec.access = access;
        spec.w = w;
        spec.y = w;
        spec.x = w;
        spec.activation = activation;
        spec.interleave = codegen::InterleaveFor(spec, target, codegen::MathMode::kExact);
        spec.bias = spec.gated() ? ir::BiasKind::kNone : ir::BiasKind::kFloat32;
        std::vector<double> seconds;
        for (int i = 0; i < context.rounds; ++i) {
          seconds.push_back(Seconds(1, [&] {
            if (!std::holds_alternative<codegen::EmittedKernel>(emitter->Emit(spec, target))) std::abort();
          }));
        }
        const double median = Median(seconds) * 1e6;
        if (median > slowest) {
          slowest = median;
          slowest_name = absl::StrCat(std::string(ir::Name(activation)), " ", std::string(ir::Name(w)));
        }
      }
    }
  }
  context.report.Add({.name = absl::StrCat("slowest kernel: ", slowest_name),
                      .measured = slowest,
                      .unit = "us",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = 500});
}

}  // namespace clikart::bench
