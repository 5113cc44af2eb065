// QLinear against the peak of its own instruction.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cases.h"
#include "clikart/clikart.h"
#include "dot_limits.h"
#include "layers.h"

namespace clikart::bench {
namespace {

Tensor Codes(const Shape& shape, DType dtype) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  std::mt19937 random(1);
  std::vector<int8_t> codes(count);
  for (int8_t& code : codes) code = static_cast<int8_t>(random());
  const Tensor tensor = Must(Tensor::FromVector<int8_t>(shape, DType::kInt8, codes));
  if (dtype == DType::kInt8) return tensor;
  std::vector<uint8_t> bytes(codes.begin(), codes.end());
  return Must(Tensor::FromVector<uint8_t>(shape, dtype, bytes));
}

template <typename T>
Tensor Value(DType dtype, T value) {
  return Must(Tensor::FromVector<T>(Shape{1}, dtype, std::vector<T>{value}));
}

std::shared_ptr<QLinear> MakeQLinear(DType x, bool requantize) {
  std::shared_ptr<QLinear> layer = Must(QLinear::Create(kInputs, kOutputs, {.bias = false}));
  const std::vector<float> scales(kOutputs, 0.01f);
  StateDict state = {{"weight", Codes({kOutputs, kInputs}, DType::kInt8)},
                     {"weight_scale", Must(Tensor::FromVector<float>(Shape{kOutputs}, DType::kFloat32, scales))},
                     {"input_scale", Value(DType::kFloat32, 0.02f)},
                     {"input_zero_point", Value(DType::kInt32, x == DType::kInt8 ? 3 : 130)}};
  if (requantize) {
    state.emplace_back("output_scale", Value(DType::kFloat32, 30.0f));
    state.emplace_back("output_zero_point", Value(DType::kInt32, 7));
  }
  if (!layer->Bind(state).ok()) std::abort();
  Must(layer->Forward(Codes({1, kInputs}, x)));  // packs and compiles
  return layer;
}

struct Case {
  DType x;
  bool requantize;
};

void MeasureCase(const Context& context, const Case& c, const DotPeak& peak) {
  constexpr int64_t bytes = kInputs * kOutputs;
  std::vector<std::shared_ptr<QLinear>> layers;
  for (int64_t held = 0; held < kStreamBytes; held += bytes) layers.push_back(MakeQLinear(c.x, c.requantize));
  for (const int threads : {1, context.max_threads}) {
    UseThreads(threads);
    for (const int64_t rows : {1, 16, 256}) {
      const bool streams = rows == 1;
      const double work = streams ? static_cast<double>(bytes) : 2.0 * static_cast<double>(rows * kInputs * kOutputs);
      const Tensor x = Codes({rows, kInputs}, c.x);
      const std::vector used(layers.begin(), rows <= 16 ? layers.end() : layers.begin() + 1);
      std::vector<double> rates, limits, shares;
      for (int i = 0; i < context.rounds; ++i) {
        const auto limit = [&] {
          return streams ? context.limits.BytesPerSecond(threads) : OpsPerSecond(peak, threads);
        };
        const double before = limit();
        rates.push_back(work / Forwards(used, x, 1, threads));
        limits.push_back((before + limit()) / 2);
        shares.push_back(100 * rates.back() / limits.back());
      }
      Row row;
      row.name = absl::StrFormat("%s%s m=%d, %d thread%s", std::string(ir::Name(c.x)),
                                 c.requantize ? " requantized" : "", rows, threads, threads == 1 ? "" : "s");
      row.measured = Median(rates) * 1e-9;
      row.unit = streams ? "GB/s" : "Gop/s";
      row.limit = Median(limits) * 1e-9;
      row.ratio = Median(shares);
      if (rows != 16) row.at_least = 85;
      context.report.Add(row);
    }
    if (threads == context.max_threads) break;
  }
}

}  // namespace

void MeasureInteger(const Context& context) {
  const DotPeak peak = IntegerPeakOf(UsedTarget());
  context.report.Section(absl::StrFormat("QLinear K=%d, N=%d against %s", kInputs, kOutputs, peak.name));
  MeasureCase(context, {DType::kInt8, false}, peak);
  MeasureCase(context, {DType::kUInt8, true}, peak);
}

}  // namespace clikart::bench
