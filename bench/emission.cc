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
  const auto measure = [&](const ir::KernelSpec& spec, const std::string& name) {
    std::vector<double> seconds;
    for (int i = 0; i < context.rounds; ++i) {
      seconds.push_back(Seconds(1, [&] {
        if (!std::holds_alternative<codegen::EmittedKernel>(emitter->Emit(spec, target))) std::abort();
      }));
    }
    const double median = Median(seconds) * 1e6;
    if (median <= slowest) return;
    slowest = median;
    slowest_name = name;
  };
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
        measure(spec, absl::StrCat(std::string(ir::Name(activation)), " ", std::string(ir::Name(w))));
      }
    }
    for (const char* const scheme : {"int8", "int8_g16_min", "int4_g32_asym", "int4_g32_min", "nf4_g64", "nvfp4"}) {
      ir::KernelSpec spec;
      spec.contraction = ir::Contraction::kWeightOnly;
      spec.n = 6144;
      spec.k = 4096;
      spec.activation = activation;
      spec.scheme = ir::QuantScheme::Parse(scheme).value();
      spec.w = spec.scheme->CodeDType();
      spec.interleave = codegen::InterleaveFor(spec, target, codegen::MathMode::kExact);
      measure(spec, absl::StrCat(std::string(ir::Name(activation)), " ", scheme));
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
