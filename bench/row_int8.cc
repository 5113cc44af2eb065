// QLinearWoQ with compute="int8": few rows against the bandwidth that the codes and scales are read with, many rows
// against a Linear of f32 weights on the same work.
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cases.h"
#include "clikart/clikart.h"
#include "layers.h"

namespace clikart::bench {
namespace {

struct Case {
  const char* scheme;
  int64_t outputs;
};

using Layers = std::vector<std::shared_ptr<QLinearWoQ>>;

// As many as no cache holds, or one.
Layers MakeLayers(const Case& c, int64_t bytes) {
  const std::shared_ptr<Linear> linear = MakeLinear(kInputs, c.outputs, DType::kFloat32, Activation::kNone);
  QuantizeOptions options;
  options.scheme = Must(QuantScheme::Parse(c.scheme));
  options.compute = Compute::kInt8;
  Layers layers;
  for (int64_t held = 0; held < kStreamBytes; held += bytes) {
    layers.push_back(Must(QLinearWoQ::Quantize(*linear, options)));
    Must(layers.back()->Forward(Values({1, kInputs}, DType::kFloat32)));  // packs and compiles
  }
  return layers;
}

std::string NameOf(const Case& c, int64_t rows, int threads) {
  return absl::StrFormat("%s N=%d m=%d, %d thread%s", c.scheme, c.outputs, rows, threads, threads == 1 ? "" : "s");
}

void MeasureStreaming(const Context& context, const Case& c, const Layers& layers, int64_t bytes, int threads) {
  const Tensor x = Values({1, kInputs}, DType::kFloat32);
  std::vector<double> rates, limits, shares;
  for (int i = 0; i < context.rounds; ++i) {
    // The limit before and after: both drift on a shared machine.
    const double before = context.limits.BytesPerSecond(threads);
    rates.push_back(static_cast<double>(bytes) / Forwards(layers, x, 1, threads));
    limits.push_back((before + context.limits.BytesPerSecond(threads)) / 2);
    shares.push_back(100 * rates.back() / limits.back());
  }
  context.report.Add({.name = NameOf(c, 1, threads),
                      .measured = Median(rates) * 1e-9,
                      .unit = "GB/s",
                      .limit = Median(limits) * 1e-9,
                      .ratio = Median(shares),
                      .at_least = 75,
                      .at_most = {}});
}

void MeasureBesideFloat(const Context& context, const Case& c, const Layers& layers, Linear& linear, int64_t rows,
                        int threads) {
  const Tensor x = Values({rows, kInputs}, DType::kFloat32);
  const double work = 2.0 * static_cast<double>(rows * kInputs * c.outputs);
  const auto linear_seconds = [&] { return Seconds(threads, [&] { Must(linear.Forward(x)); }); };
  std::vector<double> rates, others, shares;
  for (int i = 0; i < context.rounds; ++i) {
    const double before = linear_seconds();
    rates.push_back(work / Forwards(layers, x, 1, threads));
    others.push_back(2 * work / (before + linear_seconds()));
    shares.push_back(100 * rates.back() / others.back());
  }
  context.report.Add({.name = NameOf(c, rows, threads),
                      .measured = Median(rates) * 1e-9,
                      .unit = "GFLOP/s",
                      .limit = Median(others) * 1e-9,
                      .ratio = Median(shares),
                      .at_least = 100,
                      .at_most = {}});
}

void MeasureCase(const Context& context, const Case& c) {
  const QuantScheme scheme = Must(QuantScheme::Parse(c.scheme));
  const auto scale_bytes = static_cast<int64_t>(ir::SizeOf(scheme.ScaleDType()));
  const int64_t bytes = c.outputs * (scheme.CodeBytes(kInputs) + scheme.GroupCount(kInputs) * scale_bytes);
  const Layers layers = MakeLayers(c, bytes);
  const std::shared_ptr<Linear> linear = MakeLinear(kInputs, c.outputs, DType::kFloat32, Activation::kNone);
  for (const int threads : {1, context.max_threads}) {
    UseThreads(threads);
    MeasureStreaming(context, c, layers, bytes, threads);
    for (const int64_t rows : {4, 16, 256}) {
      if (c.outputs == kOutputs) MeasureBesideFloat(context, c, layers, *linear, rows, threads);
    }
    if (threads == context.max_threads) break;
  }
}

}  // namespace

void MeasureRowInt8(const Context& context) {
  context.report.Section(
      absl::StrFormat("QLinearWoQ compute=int8 K=%d, against the read bandwidth or an f32 Linear", kInputs));
  for (const Case& c :
       {Case{"int4_g32", kOutputs}, {"int4_g32", 28'672}, {"int4_g128_asym", kOutputs}, {"int8", kOutputs}}) {
    MeasureCase(context, c);
  }
}

}  // namespace clikart::bench
