// QLinearWoQ::Quantize: nanoseconds a weight.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cases.h"
#include "clikart/clikart.h"
#include "layers.h"

namespace clikart::bench {
namespace {

constexpr int64_t kRows = 256;  // the time of a weight depends on its group alone

struct Case {
  const char* scheme;
  ScaleSearch scales;
  bool weighted = false;  // with an importance for each input
  std::optional<double> at_most;
};

constexpr Case MinMax(const char* scheme) { return {scheme, ScaleSearch::kMinMax, false, 10}; }
constexpr Case Mse(const char* scheme, std::optional<double> at_most = {}) {
  return {scheme, ScaleSearch::kMse, false, at_most};
}
constexpr Case Weighted(const char* scheme, std::optional<double> at_most = {}) {
  return {scheme, ScaleSearch::kMse, true, at_most};
}

constexpr Case kCases[] = {MinMax("int4_g32"),
                           MinMax("int4_g32_min"),
                           MinMax("int8"),
                           MinMax("nf4_g64"),
                           MinMax("mxfp4"),
                           MinMax("nvfp4"),
                           MinMax("fp8_e4m3"),
                           Mse("int4_g32", 30),
                           Mse("int4_g32_asym"),
                           Mse("int4_g32_min"),
                           Mse("int2_g16_min"),
                           Mse("int8"),
                           Mse("nf4_g64"),
                           Mse("fp4_g32"),
                           Mse("mxfp4"),
                           Mse("nvfp4"),
                           Mse("fp8_e4m3"),
                           Weighted("int4_g32"),
                           Weighted("int4_g32_min"),
                           Weighted("nf4_g64"),
                           Weighted("nvfp4")};

void Measure(const Context& context, const Linear& linear, const Case& c, int threads) {
  QuantizeOptions options{.scheme = Must(QuantScheme::Parse(c.scheme)), .scales = c.scales};
  if (c.weighted) {
    std::vector<float> importance(kInputs);
    for (size_t i = 0; i < importance.size(); ++i) importance[i] = static_cast<float>(i % 13) + 0.5f;
    options.importance = Must(Tensor::FromVector<float>(Shape{kInputs}, DType::kFloat32, importance));
  }
  UseThreads(threads);
  std::vector<double> seconds;
  for (int i = 0; i < context.rounds; ++i) {
    seconds.push_back(Seconds(threads, [&] { Must(QLinearWoQ::Quantize(linear, options)); }));
  }
  const char* const search = c.scales == ScaleSearch::kMinMax ? "minmax" : c.weighted ? "mse, importance" : "mse";
  context.report.Add({.name = absl::StrFormat("%s %s, %d thread%s", c.scheme, search, threads, threads == 1 ? "" : "s"),
                      .measured = Median(seconds) * 1e9 / static_cast<double>(kRows * kInputs),
                      .unit = "ns/weight",
                      .limit = {},
                      .ratio = {},
                      .at_least = {},
                      .at_most = threads == 1 ? c.at_most : std::nullopt});
}

}  // namespace

void MeasureQuantize(const Context& context) {
  context.report.Section(absl::StrFormat("QLinearWoQ::Quantize, K=%d", kInputs));
  const std::shared_ptr<Linear> linear = MakeLinear(kInputs, kRows, DType::kFloat32, Activation::kNone);
  for (const Case& c : kCases) Measure(context, *linear, c, 1);
  if (context.max_threads > 1) Measure(context, *linear, Mse("int4_g32"), context.max_threads);
}

}  // namespace clikart::bench
