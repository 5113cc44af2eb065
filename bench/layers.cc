#include "layers.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cases.h"
#include "clikart/clikart.h"
#include "dot_limits.h"

namespace clikart::bench {

Tensor Values(const Shape& shape, DType dtype) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state) >> 8) * 0x1p-25f;
  }
  const Tensor wide = Must(Tensor::FromVector<float>(shape, DType::kFloat32, values));
  return dtype == DType::kFloat32 ? wide : Must(wide.To(dtype));
}

std::shared_ptr<Linear> MakeLinear(int64_t inputs, int64_t outputs, DType dtype, Activation activation) {
  LinearOptions options;
  options.bias = false;
  options.dtype = dtype;
  options.activation = activation;
  std::shared_ptr<Linear> layer = Must(Linear::Create(inputs, outputs, options));
  const absl::Status bound = layer->Bind({{"weight", Values({outputs, inputs}, dtype)}});
  if (!bound.ok()) std::abort();
  Must(layer->Forward(Values({1, inputs}, DType::kFloat32)));  // packs and compiles
  return layer;
}

namespace {

// Which layers are measured, and against what.
struct Kind {
  DType x;
  DType w;
  std::optional<DotPeak> peak;  // of multiplying; without one that of fma

  std::optional<double> bandwidth;  // percent, at one row
  std::optional<double> flops;      // percent, at 256 rows
};

void MeasureKind(const Context& context, const Kind& kind) {
  const int64_t bytes = kInputs * kOutputs * static_cast<int64_t>(ir::SizeOf(kind.w));
  std::vector<std::shared_ptr<Linear>> layers;
  for (int64_t held = 0; held < kStreamBytes; held += bytes) {
    layers.push_back(MakeLinear(kInputs, kOutputs, kind.w, Activation::kNone));
    Must(layers.back()->Forward(Values({1, kInputs}, kind.x)));
  }
  for (const int threads : {1, context.max_threads}) {
    UseThreads(threads);
    for (const int64_t rows : {1, 4, 16, 64, 256}) {
      // Few rows are bound by reading the weight, many by multiplying.
      const bool streams = rows <= 4;
      const double work = streams ? static_cast<double>(bytes) : 2.0 * static_cast<double>(rows * kInputs * kOutputs);
      const Tensor x = Values({rows, kInputs}, kind.x);
      const std::vector<std::shared_ptr<Linear>> used(layers.begin(), rows <= 16 ? layers.end() : layers.begin() + 1);
      std::vector<double> rates, limits, shares;
      for (int i = 0; i < context.rounds; ++i) {
        // The limit before and after: both drift on a shared machine.
        const auto limit = [&] {
          if (streams) return context.limits.BytesPerSecond(threads);
          return kind.peak ? OpsPerSecond(*kind.peak, threads) : context.limits.FlopsPerSecond(threads);
        };
        const double before = limit();
        rates.push_back(work / Forwards(used, x, 1, threads));
        limits.push_back((before + limit()) / 2);
        shares.push_back(100 * rates.back() / limits.back());
      }
      Row row;
      row.name = absl::StrFormat("%s m=%d, %d thread%s", std::string(ir::Name(kind.w)), rows, threads,
                                 threads == 1 ? "" : "s");
      row.measured = Median(rates) * 1e-9;
      row.unit = streams ? "GB/s" : "GFLOP/s";
      row.limit = Median(limits) * 1e-9;
      row.ratio = Median(shares);
      if (rows == 1) row.at_least = kind.bandwidth;
      if (rows == 256) row.at_least = kind.flops;
      context.report.Add(row);
    }
    if (threads == context.max_threads) break;
  }
}

}  // namespace

void MeasureThroughput(const Context& context) {
  context.report.Section(absl::StrFormat("Linear K=%d, N=%d, f32 inputs", kInputs, kOutputs));
  constexpr DType kWide = DType::kFloat32;
  MeasureKind(context, {.x = kWide, .w = kWide, .peak = {}, .bandwidth = 85, .flops = 85});
  MeasureKind(context, {.x = kWide, .w = DType::kBFloat16, .peak = {}, .bandwidth = 80, .flops = {}});
  MeasureKind(context, {.x = kWide, .w = DType::kFloat16, .peak = {}, .bandwidth = {}, .flops = {}});

  const std::optional<DotPeak> dot = Bf16PeakOf(UsedTarget());
  if (!dot.has_value()) return;
  context.report.Section(absl::StrFormat("Linear K=%d, N=%d, bf16 inputs against %s", kInputs, kOutputs, dot->name));
  constexpr DType kHalf = DType::kBFloat16;
  MeasureKind(context, {.x = kHalf, .w = kHalf, .peak = dot, .bandwidth = 80, .flops = 85});
}

void MeasureDepthwise(const Context& context) {
  constexpr int64_t kChannels = 256, kSide = 56, kTaps = 9;
  constexpr int kCalls = 20;
  context.report.Section(absl::StrFormat("Depthwise convolution 3x3 over %d x %d x %d", kSide, kSide, kChannels));
  ConvOptions options;
  options.kernel_size = {3, 3};
  options.padding = {{1, 1}, {1, 1}};
  options.groups = kChannels;
  options.bias = false;
  const std::shared_ptr<Conv> layer = Must(Conv::Create(kChannels, kChannels, options));
  if (!layer->Bind({{"weight", Values({kChannels, 1, 3, 3}, DType::kFloat32)}}).ok()) std::abort();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor x = Values({1, kSide, kSide, kChannels}, dtype);
    Must(layer->Forward(x));  // packs and compiles
    for (const int threads : {1, context.max_threads}) {
      UseThreads(threads);
      std::vector<double> rates, limits, shares;
      for (int i = 0; i < context.rounds; ++i) {
        const double before = context.limits.FlopsPerSecond(threads);
        const double seconds = Seconds(threads, [&] {
          for (int call = 0; call < kCalls; ++call) Must(layer->Forward(x));
        });
        rates.push_back(2.0 * static_cast<double>(kCalls * kSide * kSide * kChannels * kTaps) / seconds);
        limits.push_back((before + context.limits.FlopsPerSecond(threads)) / 2);
        shares.push_back(100 * rates.back() / limits.back());
      }
      Row row;
      row.name =
          absl::StrFormat("%s inputs, %d thread%s", std::string(ir::Name(dtype)), threads, threads == 1 ? "" : "s");
      row.measured = Median(rates) * 1e-9;
      row.unit = "GFLOP/s";
      row.limit = Median(limits) * 1e-9;
      row.ratio = Median(shares);
      if (threads == 1) row.at_least = 20;
      context.report.Add(row);
      if (threads == context.max_threads) break;
    }
  }
}

void MeasureEpilogues(const Context& context) {
  constexpr int64_t kRows = 256;
  context.report.Section(
      absl::StrFormat("Activations at m=%d, K=%d, N=%d over the bare kernel (milliseconds)", kRows, kInputs, kOutputs));
  const Tensor x = Values({kRows, kInputs}, DType::kFloat32);
  const std::vector bare = {MakeLinear(kInputs, kOutputs, DType::kFloat32, Activation::kNone)};
  for (const Activation activation : ir::AllActivations()) {
    if (activation == Activation::kNone) continue;
    const std::vector active = {MakeLinear(kInputs, kOutputs, DType::kFloat32, activation)};
    UseThreads(1);
    std::vector<double> plain, whole, over;
    for (int i = 0; i < context.rounds; ++i) {
      const double before = Forwards(bare, x, 1, 1);
      whole.push_back(Forwards(active, x, 1, 1));
      plain.push_back((before + Forwards(bare, x, 1, 1)) / 2);
      over.push_back(100 * (whole.back() / plain.back() - 1));
    }
    Row row;
    row.name = std::string(ir::Name(activation));
    row.measured = Median(whole) * 1e3;
    row.unit = "ms";
    row.limit = Median(plain) * 1e3;
    row.ratio = Median(over);
    row.at_most = 5;
    context.report.Add(row);
  }
}

void MeasureCallOverhead(const Context& context) {
  context.report.Section("A forward of m=1, K=N=16 (nanoseconds)");
  constexpr int kCalls = 20'000;
  UseThreads(1);
  const std::vector layers = {MakeLinear(16, 16, DType::kFloat32, Activation::kNone)};
  const Tensor x = Values({1, 16}, DType::kFloat32);
  std::vector<double> seconds;
  for (int i = 0; i < context.rounds; ++i) seconds.push_back(Forwards(layers, x, kCalls, 1));
  Row row;
  row.name = "everything, output included";
  row.measured = Median(seconds) * 1e9;
  row.unit = "ns";
  row.at_most = 200;
  context.report.Add(row);
}

}  // namespace clikart::bench
