// QLinearWoQ with float inputs: one row against the read bandwidth, many against a Linear of the same shape.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cases.h"
#include "clikart/clikart.h"
#include "layers.h"

namespace clikart::bench {
namespace {

// Bytes that are ordinary scales of 16 bits, and codes of all values.
std::vector<uint16_t> Halves(size_t count) {
  std::mt19937 random(1);
  std::vector<uint16_t> halves(count);
  for (uint16_t& half : halves) half = static_cast<uint16_t>(0x2c00 | (random() & 0x3ff));
  return halves;
}

Tensor Parameter(const Shape& shape, DType dtype) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  if (dtype == DType::kFloat16) return Must(Tensor::FromVector<uint16_t>(shape, dtype, Halves(count)));
  std::mt19937 random(2);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (dtype == DType::kUInt8) return Must(Tensor::FromVector<uint8_t>(shape, dtype, bytes));
  return Must(Tensor::FromVector<int8_t>(shape, dtype, std::vector<int8_t>(bytes.begin(), bytes.end())));
}

Tensor Inputs(int64_t rows) {
  std::mt19937 random(3);
  std::vector<float> values(static_cast<size_t>(rows * kInputs));
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f;
  return Must(Tensor::FromVector<float>(Shape{rows, kInputs}, DType::kFloat32, values));
}

std::shared_ptr<QLinearWoQ> MakeCodes(const QuantScheme& scheme, int64_t outputs) {
  std::shared_ptr<QLinearWoQ> layer = Must(QLinearWoQ::Create(kInputs, outputs, {.bias = false, .scheme = scheme}));
  const Shape groups{outputs, scheme.GroupCount(kInputs)};
  StateDict state = {{"weight", Parameter({outputs, scheme.CodeBytes(kInputs)}, scheme.CodeDType())},
                     {"weight_scale", Parameter(groups, scheme.ScaleDType())}};
  if (scheme.HasZeroPoint()) {
    const std::vector<uint8_t> middle(static_cast<size_t>(groups[0] * groups[1]), uint8_t{7});
    state.emplace_back("weight_zero_point", Must(Tensor::FromVector<uint8_t>(groups, DType::kUInt8, middle)));
  }
  if (!layer->Bind(state).ok()) std::abort();
  Must(layer->Forward(Inputs(1)));  // packs and compiles
  return layer;
}

std::shared_ptr<Linear> MakeFloats(int64_t outputs) {
  std::shared_ptr<Linear> layer = Must(Linear::Create(kInputs, outputs, {.bias = false}));
  const std::vector<float> weight(static_cast<size_t>(outputs * kInputs), 0.01f);
  const Shape shape{outputs, kInputs};
  if (!layer->Bind({{"weight", Must(Tensor::FromVector<float>(shape, DType::kFloat32, weight))}}).ok()) std::abort();
  Must(layer->Forward(Inputs(1)));
  return layer;
}

struct Goals {
  std::optional<double> bandwidth;  // percent at one row
  std::optional<double> rate;       // GB/s a core at one row, where that is less
  std::optional<double> floats;     // percent of a Linear's speed at 256 rows
};

constexpr int64_t kMany = 256;

// Few rows: codes and scales that are read in a second, beside the limit.
void MeasureFew(const Context& context, const std::string& name, int64_t rows, int threads, const Goals& goals,
                const std::vector<std::shared_ptr<QLinearWoQ>>& layers, double bytes) {
  const Tensor x = Inputs(rows);
  std::vector<double> rates, limits, shares;
  for (int i = 0; i < context.rounds; ++i) {
    // The limit before and after: both drift on a shared machine.
    const double before = context.limits.BytesPerSecond(threads);
    rates.push_back(bytes / Forwards(layers, x, 1, threads));
    limits.push_back((before + context.limits.BytesPerSecond(threads)) / 2);
    shares.push_back(100 * rates.back() / limits.back());
  }
  Row row;
  row.name = absl::StrFormat("%s m=%d, %d thread%s", name, rows, threads, threads == 1 ? "" : "s");
  row.measured = Median(rates) * 1e-9;
  row.unit = "GB/s";
  row.limit = Median(limits) * 1e-9;
  row.ratio = Median(shares);
  if (rows == 1) {
    std::vector<double> goal;
    if (goals.bandwidth) goal.push_back(*goals.bandwidth);
    if (goals.rate) goal.push_back(100 * *goals.rate * threads / *row.limit);
    if (!goal.empty()) row.at_least = *std::min_element(goal.begin(), goal.end());
  }
  context.report.Add(row);
}

void MeasureMany(const Context& context, const std::string& name, int threads, const Goals& goals,
                 const std::shared_ptr<QLinearWoQ>& codes, const std::shared_ptr<Linear>& floats, double multiplies) {
  const Tensor x = Inputs(kMany);
  std::vector<double> rates, limits, shares;
  const std::vector of_codes = {codes};
  const std::vector of_floats = {floats};
  for (int i = 0; i < context.rounds; ++i) {
    const double before = Forwards(of_floats, x, 1, threads);
    rates.push_back(multiplies / Forwards(of_codes, x, 1, threads));
    limits.push_back(2 * multiplies / (before + Forwards(of_floats, x, 1, threads)));
    shares.push_back(100 * rates.back() / limits.back());
  }
  Row row;
  row.name = absl::StrFormat("%s m=%d, %d thread%s", name, kMany, threads, threads == 1 ? "" : "s");
  row.measured = Median(rates) * 2e-9;
  row.unit = "GFLOP/s";
  row.limit = Median(limits) * 2e-9;
  row.ratio = Median(shares);
  row.at_least = goals.floats;
  context.report.Add(row);
}

void MeasureScheme(const Context& context, const char* text, int64_t outputs, const Goals& goals,
                   const std::shared_ptr<Linear>& floats) {
  const QuantScheme scheme = Must(QuantScheme::Parse(text));
  const int64_t scales = scheme.GroupCount(kInputs) * static_cast<int64_t>(ir::SizeOf(scheme.ScaleDType()));
  const int64_t bytes = outputs * (scheme.CodeBytes(kInputs) + scales);
  std::vector<std::shared_ptr<QLinearWoQ>> layers;
  for (int64_t held = 0; held < kStreamBytes; held += bytes) layers.push_back(MakeCodes(scheme, outputs));
  for (const int threads : {1, context.max_threads}) {
    UseThreads(threads);
    for (const int64_t rows : {1, 4, 16}) {
      MeasureFew(context, text, rows, threads, goals, layers, static_cast<double>(bytes));
    }
    const auto multiplies = static_cast<double>(kMany * kInputs * outputs);
    if (floats != nullptr) MeasureMany(context, text, threads, goals, layers.front(), floats, multiplies);
    if (threads == context.max_threads) break;
  }
}

}  // namespace

void MeasureCodes(const Context& context) {
  constexpr int64_t kWide = 28'672;
  constexpr Goals kBytes{.bandwidth = 85, .rate = {}, .floats = 85};
  constexpr Goals kLongGroups{.bandwidth = 65, .rate = 11, .floats = 85};
  constexpr Goals kShortGroups{.bandwidth = {}, .rate = 9.5, .floats = 85};
  context.report.Section(
      absl::StrFormat("QLinearWoQ K=%d, N=%d, f32 inputs; m=256 against a Linear", kInputs, kOutputs));
  const std::shared_ptr<Linear> floats = MakeFloats(kOutputs);
  MeasureScheme(context, "int8", kOutputs, kBytes, floats);
  MeasureScheme(context, "int4_g128", kOutputs, kLongGroups, floats);
  MeasureScheme(context, "int4_g32", kOutputs, kShortGroups, floats);
  MeasureScheme(context, "int4_g128_asym", kOutputs, {}, floats);
  MeasureScheme(context, "nf4_g64", kOutputs, {}, floats);
  context.report.Section(absl::StrFormat("QLinearWoQ K=%d, N=%d, f32 inputs", kInputs, kWide));
  MeasureScheme(context, "int8", kWide, kBytes, nullptr);
  MeasureScheme(context, "int4_g128", kWide, kLongGroups, nullptr);
  MeasureScheme(context, "int4_g32", kWide, kShortGroups, nullptr);
}

}  // namespace clikart::bench
