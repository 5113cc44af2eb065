// What LLVM's kernels give away against the fast path's on the same level, and what compiling them takes.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cases.h"
#include "clikart/codegen/emitter.h"
#include "clikart/ir/code_layout.h"
#include "kernel_runner.h"
#include "layers.h"

namespace clikart::bench {
namespace {

using codegen::IsaLevel;
using ir::DType;

constexpr int64_t kRows = 256, kCachedInputs = 1024, kCachedOutputs = 1024;

ir::KernelSpec Spec(DType weights) {
  ir::KernelSpec spec;
  spec.n = kCachedOutputs;
  spec.k = kCachedInputs;
  spec.w = weights;
  return spec;
}

ir::KernelSpec CodeSpec(const char* scheme) {
  ir::KernelSpec spec;
  spec.contraction = ir::Contraction::kWeightOnly;
  spec.n = kOutputs;
  spec.k = kInputs;
  spec.scheme = Must(ir::QuantScheme::Parse(scheme));
  spec.w = spec.scheme->CodeDType();
  spec.interleave = ir::CodeInterleave(spec.contraction, *spec.scheme);
  return spec;
}

bool CanRun(IsaLevel level) {
  return codegen::Detect(codegen::CpuidRecord::Host(level), level).Includes(codegen::TargetOf(level));
}

// `work`, in `unit` times 1e9, for each call of either function.
void Compare(const Context& context, const std::string& name, const char* unit, double work,
             std::optional<double> at_least, const std::function<void()>& fast, const std::function<void()>& ours) {
  fast();
  ours();
  std::vector<double> rates, limits, shares;
  for (int i = 0; i < context.rounds; ++i) {
    const double before = Seconds(1, fast);
    rates.push_back(work / Seconds(1, ours));
    limits.push_back(2 * work / (before + Seconds(1, fast)));
    shares.push_back(100 * rates.back() / limits.back());
  }
  context.report.Add({.name = name,
                      .measured = Median(rates) * 1e-9,
                      .unit = unit,
                      .limit = Median(limits) * 1e-9,
                      .ratio = Median(shares),
                      .at_least = at_least,
                      .at_most = {}});
}

void CompareSpeed(const Context& context, IsaLevel level, DType weights, std::optional<double> at_least) {
  if (!CanRun(level)) return;
  const ir::KernelSpec spec = Spec(weights);
  const ZeroBytes zeros(PackedBytes(spec));
  KernelRunner fast("xbyak", level, spec, kRows), ours("llvm", level, spec, kRows);
  Compare(
      context, absl::StrCat(std::string(codegen::Name(level)), " ", std::string(ir::Name(weights)), " m=", kRows),
      "GFLOP/s", 2.0 * kRows * static_cast<double>(spec.n * spec.k), at_least, [&] { fast.Run(zeros.span()); },
      [&] { ours.Run(zeros.span()); });
}

// One layer's codes after another's, as many as no cache holds.
void CompareCodes(const Context& context, IsaLevel level, const char* scheme, int64_t rows,
                  std::optional<double> at_least) {
  if (!CanRun(level)) return;
  const ir::KernelSpec spec = CodeSpec(scheme);
  const int64_t bytes = PackedBytes(spec);
  const int64_t layers = kStreamBytes / bytes;
  const ZeroBytes zeros(layers * bytes);
  KernelRunner fast("xbyak", level, spec, rows), ours("llvm", level, spec, rows);
  const auto run = [&](KernelRunner& runner) {
    for (int64_t i = 0; i < layers; ++i) {
      runner.Run(zeros.span().subspan(static_cast<size_t>(i * bytes), static_cast<size_t>(bytes)));
    }
  };
  Compare(
      context, absl::StrCat(std::string(codegen::Name(level)), " ", scheme, " m=", rows), "GB/s",
      static_cast<double>(layers * bytes), at_least, [&] { run(fast); }, [&] { run(ours); });
}

struct Named {
  std::string name;
  ir::KernelSpec spec;
};

std::vector<Named> FloatKernels() {
  std::vector<Named> kernels;
  for (const ir::Activation activation : {ir::Activation::kNone, ir::Activation::kGelu, ir::Activation::kMish,
                                          ir::Activation::kSwiglu, ir::Activation::kSitu}) {
    for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      ir::KernelSpec spec = Spec(type);
      spec.x = spec.y = type;
      spec.activation = activation;
      kernels.push_back({absl::StrCat(std::string(ir::Name(activation)), " ", std::string(ir::Name(type))), spec});
    }
  }
  return kernels;
}

std::vector<Named> CodeKernels() {
  std::vector<Named> kernels;
  for (const char* const scheme : {"int8", "int8_g5_asym", "int4_g32", "int4_g128_asym", "int4_g7_asym", "int4_g32_min",
                                   "int2_g32_asym", "nf4_g64", "nvfp4", "fp8_e4m3"}) {
    kernels.push_back({scheme, CodeSpec(scheme)});
  }
  return kernels;
}

void MeasureCompilation(const Context& context, IsaLevel level, const std::vector<Named>& kernels, double at_most) {
  const codegen::Emitter* const emitter = codegen::FindEmitter("llvm");
  double slowest = 0;
  std::string slowest_name;
  for (const Named& kernel : kernels) {
    std::vector<double> seconds;
    for (int i = 0; i < context.rounds; ++i) {
      seconds.push_back(Seconds(1, [&] {
        if (!std::holds_alternative<codegen::EmittedKernel>(emitter->Emit(kernel.spec, codegen::TargetOf(level)))) {
          std::abort();
        }
      }));
    }
    if (Median(seconds) <= slowest) continue;
    slowest = Median(seconds);
    slowest_name = kernel.name;
  }
  context.report.Add({.name = absl::StrCat("slowest of ", std::string(codegen::Name(level)), ": ", slowest_name),
                      .measured = slowest * 1e3,
                      .unit = "ms",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = at_most});
}

}  // namespace

void MeasureLlvm(const Context& context) {
  context.report.Section("Compiling with LLVM (milliseconds of CPU time)");
  const codegen::Emitter* const emitter = codegen::FindEmitter("llvm");
  const double first = Seconds(1, [&] {
    if (!std::holds_alternative<codegen::EmittedKernel>(
            emitter->Emit(Spec(DType::kFloat32), codegen::TargetOf(IsaLevel::kAvx2)))) {
      std::fprintf(stderr, "clikart-bench: this build has no LLVM emitter\n");
      std::exit(1);
    }
  });
  context.report.Add({.name = "the first kernel, loading LLVM",
                      .measured = first * 1e3,
                      .unit = "ms",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = {}});
  for (const IsaLevel level : {IsaLevel::kBaseline, IsaLevel::kSse4, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    MeasureCompilation(context, level, FloatKernels(), 60);
    MeasureCompilation(context, level, CodeKernels(), 80);
  }
  context.report.Section("LLVM's kernels beside xbyak's on one thread, K=1024, N=1024");
  CompareSpeed(context, IsaLevel::kAvx2, DType::kFloat32, 75);
  CompareSpeed(context, IsaLevel::kAvx2, DType::kFloat16, {});
  CompareSpeed(context, IsaLevel::kAvx2, DType::kBFloat16, {});
  CompareSpeed(context, IsaLevel::kAvx512, DType::kFloat32, {});
  context.report.Section(absl::StrCat("Quantized weights, f32 inputs, K=", kInputs, ", N=", kOutputs));
  for (const IsaLevel level : {IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    for (const char* const scheme : {"int8", "int4_g128", "int4_g32"}) {
      for (const int64_t rows : {1, 2, 4, 16}) {
        CompareCodes(context, level, scheme, rows, rows == 1 ? std::optional(60.0) : std::nullopt);
      }
    }
  }
}

}  // namespace clikart::bench
