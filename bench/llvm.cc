// What LLVM's kernels give away against the fast path's on the same level, and what compiling them takes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cases.h"
#include "clikart/codegen/emitter.h"
#include "clikart/ir/panel_layout.h"
#include "executable_memory.h"

namespace clikart::bench {
namespace {

using codegen::IsaLevel;
using ir::DType;

constexpr int64_t kRows = 256, kInputs = 1024, kOutputs = 1024;

[[noreturn]] void Fail(const std::string& complaint) {
  std::fprintf(stderr, "clikart-bench: %s\n", complaint.c_str());
  std::exit(1);
}

// A kernel of one emitter, with memory of its own to run on.
class Runner {
 public:
  Runner(std::string_view emitter, IsaLevel level, const ir::KernelSpec& spec)
      : layout_(ir::LayoutOf(spec)),
        x_(kRows * kInputs, 0.5f),
        weights_(static_cast<size_t>(layout_.TotalBytes()) + kLine),
        y_(kRows * kOutputs) {
    auto emitted = codegen::FindEmitter(emitter)->Emit(spec, codegen::TargetOf(level));
    if (const auto* const rejection = std::get_if<codegen::Rejection>(&emitted)) Fail(rejection->detail);
    const auto& kernel = std::get<codegen::EmittedKernel>(emitted);
    auto code = MakeExecutable(kernel.code);
    if (!code.ok()) Fail(std::string(code.status().message()));
    code_ = *std::move(code);
    image_.spec = spec;
    image_.schedule = kernel.schedule;
    image_.run = kernel.run;
    for (size_t i = 0; i < kernel.entry_offsets.size(); ++i) {
      if (kernel.entry_offsets[i] >= 0) image_.entries[i] = code_->data() + kernel.entry_offsets[i];
    }
    scratch_.resize(static_cast<size_t>(codegen::ScratchBytes(spec, image_.schedule, image_.schedule.tile_rows,
                                                              image_.schedule.tile_panels)) +
                    kLine);
  }

  void Run() {
    const codegen::KernelImage& image = image_;
    codegen::TileArgs args;
    args.x_stride = kInputs * static_cast<int64_t>(sizeof(float));
    args.y = reinterpret_cast<std::byte*>(y_.data());
    args.y_stride = kOutputs * static_cast<int64_t>(sizeof(float));
    args.scratch = Aligned(scratch_);
    for (int64_t panel = 0; panel < layout_.Panels(); panel += image.schedule.tile_panels) {
      args.first_panel = panel;
      args.panels = std::min(image.schedule.tile_panels, layout_.Panels() - panel);
      args.weights = Aligned(weights_) + panel * layout_.PanelBytes();
      for (int64_t row = 0; row < kRows; row += image.schedule.tile_rows) {
        args.x = reinterpret_cast<const std::byte*>(x_.data()) + row * args.x_stride;
        args.rows = std::min(image.schedule.tile_rows, kRows - row);
        codegen::TileArgs tile = args;
        tile.y = args.y + row * args.y_stride;
        image.run(image, tile);
      }
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static std::byte* Aligned(std::vector<std::byte>& memory) {
    void* at = memory.data();
    size_t space = memory.size();
    return static_cast<std::byte*>(std::align(kLine, 1, at, space));
  }

  const ir::PanelLayout layout_;
  std::shared_ptr<ExecutableBlock> code_;
  codegen::KernelImage image_;
  std::vector<float> x_;
  std::vector<std::byte> weights_;
  std::vector<float> y_;
  std::vector<std::byte> scratch_;
};

ir::KernelSpec Spec(DType weights) {
  ir::KernelSpec spec;
  spec.n = kOutputs;
  spec.k = kInputs;
  spec.w = weights;
  return spec;
}

void CompareSpeed(const Context& context, IsaLevel level, DType weights, std::optional<double> at_least) {
  if (!codegen::Detect(codegen::CpuidRecord::Host(level), level).Includes(codegen::TargetOf(level))) return;
  Runner fast("xbyak", level, Spec(weights)), ours("llvm", level, Spec(weights));
  const auto seconds = [](Runner& runner) { return Seconds(1, [&] { runner.Run(); }); };
  seconds(fast);
  seconds(ours);
  std::vector<double> rates, limits, shares;
  for (int i = 0; i < context.rounds; ++i) {
    constexpr double kWork = 2.0 * kRows * kInputs * kOutputs;
    const double before = seconds(fast);
    rates.push_back(kWork / seconds(ours));
    limits.push_back(2 * kWork / (before + seconds(fast)));
    shares.push_back(100 * rates.back() / limits.back());
  }
  context.report.Add({.name = absl::StrCat(std::string(codegen::Name(level)), " ", std::string(ir::Name(weights)),
                                           " m=256, beside xbyak"),
                      .measured = Median(rates) * 1e-9,
                      .unit = "GFLOP/s",
                      .limit = Median(limits) * 1e-9,
                      .ratio = Median(shares),
                      .at_least = at_least,
                      .at_most = {}});
}

void MeasureCompilation(const Context& context, IsaLevel level) {
  const codegen::Emitter* const emitter = codegen::FindEmitter("llvm");
  double slowest = 0;
  std::string slowest_name;
  for (const ir::Activation activation : {ir::Activation::kNone, ir::Activation::kGelu, ir::Activation::kMish,
                                          ir::Activation::kSwiglu, ir::Activation::kSitu}) {
    for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      ir::KernelSpec spec = Spec(type);
      spec.x = spec.y = type;
      spec.activation = activation;
      std::vector<double> seconds;
      for (int i = 0; i < context.rounds; ++i) {
        seconds.push_back(Seconds(1, [&] {
          if (!std::holds_alternative<codegen::EmittedKernel>(emitter->Emit(spec, codegen::TargetOf(level)))) {
            std::abort();
          }
        }));
      }
      if (Median(seconds) <= slowest) continue;
      slowest = Median(seconds);
      slowest_name = absl::StrCat(std::string(ir::Name(activation)), " ", std::string(ir::Name(type)));
    }
  }
  context.report.Add({.name = absl::StrCat("slowest of ", std::string(codegen::Name(level)), ": ", slowest_name),
                      .measured = slowest * 1e3,
                      .unit = "ms",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = 60});
}

}  // namespace

void MeasureLlvm(const Context& context) {
  context.report.Section("Compiling with LLVM (milliseconds of CPU time)");
  const codegen::Emitter* const emitter = codegen::FindEmitter("llvm");
  const double first = Seconds(1, [&] {
    if (!std::holds_alternative<codegen::EmittedKernel>(
            emitter->Emit(Spec(DType::kFloat32), codegen::TargetOf(IsaLevel::kAvx2)))) {
      Fail("this build has no LLVM emitter");
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
    MeasureCompilation(context, level);
  }
  context.report.Section("LLVM's kernels beside xbyak's on one thread, K=1024, N=1024");
  CompareSpeed(context, IsaLevel::kAvx2, DType::kFloat32, 75);
  CompareSpeed(context, IsaLevel::kAvx2, DType::kFloat16, {});
  CompareSpeed(context, IsaLevel::kAvx2, DType::kBFloat16, {});
  CompareSpeed(context, IsaLevel::kAvx512, DType::kFloat32, {});
}

}  // namespace clikart::bench
