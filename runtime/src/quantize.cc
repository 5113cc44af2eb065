// QLinearWoQ::Quantize: a float linear's weight to codes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clikart/nn.h"
#include "layer_body.h"
#include "parallel.h"
#include "quantize_rows.h"
#include "status_macros.h"
#include "tensor_copy.h"
#include "text.h"

namespace clikart {
namespace {

// The tensors of one moment; a first forward elsewhere cannot take the weight away any more.
absl::StatusOr<Tensors> TensorsNow(const LayerBody& body) {
  for (;;) {
    const std::shared_ptr<const BodyState> state = body.state();
    if (state->kind == LayerState::kUnbound) {
      return absl::FailedPreconditionError(
          absl::StrCat(body.label(), " is unbound: load its parameters before quantizing them"));
    }
    CLIKART_ASSIGN_OR_RETURN(Tensors tensors, body.ReadAll(*state));
    absl::StatusOr<Tensor> weight = InNewSlot(*tensors[0]);
    if (!weight.ok() && state != body.state()) continue;  // packed meanwhile
    CLIKART_ASSIGN_OR_RETURN(tensors[0], std::move(weight));
    CLIKART_ASSIGN_OR_RETURN(tensors[0], tensors[0]->Contiguous());
    return tensors;
  }
}

// A float weight [rows, depth] in memory, read row by row.
struct WeightReader {
  const std::byte* data;
  DType dtype;
  int64_t rows;
  int64_t depth;

  void Read(int64_t row, float* out) const {
    ConvertFloats(data + row * depth * static_cast<int64_t>(ir::SizeOf(dtype)), dtype,
                  reinterpret_cast<std::byte*>(out), DType::kFloat32, depth);
  }
};

// The least index that any thread reports.
class FirstIndex {
 public:
  void Report(int64_t index) {
    int64_t known = index_.load();
    while (index < known && !index_.compare_exchange_weak(known, index)) {
    }
  }
  std::optional<int64_t> get() const {
    const int64_t index = index_.load();
    return index == kNone ? std::nullopt : std::optional(index);
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> index_{kNone};
};

// The greatest magnitude of the weight, which has to be finite.
absl::StatusOr<float> Peak(const WeightReader& weight) {
  std::vector<float> peaks(static_cast<size_t>(weight.rows));
  FirstIndex bad;
  ParallelFor(weight.rows, [&](int64_t row) {
    std::vector<float> values(static_cast<size_t>(weight.depth));
    weight.Read(row, values.data());
    float peak = 0;
    for (const float value : values) peak = std::max(peak, std::abs(value));
    peaks[static_cast<size_t>(row)] = peak;
    const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
    if (found != values.end()) bad.Report(row * weight.depth + (found - values.begin()));
  });
  if (bad.get().has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("weight: found NaN or infinity at [", *bad.get() / weight.depth,
                                                      ", ", *bad.get() % weight.depth,
                                                      "]; expected finite values, which alone have codes"));
  }
  return peaks.empty() ? 0.0f : *std::max_element(peaks.begin(), peaks.end());
}

// What the quantized layer holds, filled row by row.
class CodeWriter {
 public:
  static absl::StatusOr<CodeWriter> Make(const QLinearWoQ& layer) {
    CodeWriter writer(layer.scheme(), layer.in_features());
    for (const ParameterSpec& spec : layer.Parameters()) {
      if (!spec.required || spec.name == "bias" || spec.name == "weight_global_scale") continue;
      CLIKART_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Empty(spec.shape, spec.dtype));
      CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensor.Pin());
      if (spec.name == "weight") writer.codes_ = pinned.data;
      if (spec.name == "weight_scale") writer.scales_ = pinned.data;
      if (spec.name == "weight_zero_point") writer.zero_points_ = pinned.data;
      if (spec.name == "weight_minimum") writer.minimums_ = pinned.data;
      writer.tensors_.emplace_back(spec.name, std::move(tensor));
    }
    return writer;
  }

  void WriteGroup(int64_t row, int64_t group, const GroupCodes& written) {
    const int64_t at = row * groups_ + group;
    WriteScale(scales_, at, written.scale);
    if (minimums_ != nullptr) WriteScale(minimums_, at, written.minimum);
    if (zero_points_ != nullptr) zero_points_[at] = std::byte{written.zero};
  }

  // `codes`: one a byte, as many as inputs. In memory the first lies in the lowest bits.
  void WriteCodes(int64_t row, const uint8_t* codes) {
    std::byte* const out = codes_ + row * row_bytes_;
    switch (scheme_.bits) {
      case 2:
        return Pack<2>(codes, depth_, out);
      case 4:
        return Pack<4>(codes, depth_, out);
      default:
        return Pack<8>(codes, depth_, out);
    }
  }

  StateDict& tensors() { return tensors_; }

 private:
  CodeWriter(const QuantScheme& scheme, int64_t depth)
      : scheme_(scheme),
        format_(scheme.scale_type),
        depth_(depth),
        groups_(scheme.GroupCount(depth)),
        row_bytes_(scheme.CodeBytes(depth)) {}

  void WriteScale(std::byte* to, int64_t at, double value) {
    const auto size = static_cast<int64_t>(ir::SizeOf(scheme_.ScaleDType()));
    const uint32_t bits = format_.BitsOf(value);
    std::memcpy(to + at * size, &bits, static_cast<size_t>(size));  // little endian
  }

  template <int kBits>
  static void Pack(const uint8_t* codes, int64_t count, std::byte* out) {
    constexpr int kPerByte = 8 / kBits;
    for (int64_t first = 0; first < count; first += kPerByte) {
      unsigned byte = 0;
      const int64_t last = std::min<int64_t>(kPerByte, count - first);
      for (int64_t i = 0; i < last; ++i) byte |= static_cast<unsigned>(codes[first + i]) << (i * kBits);
      *out++ = static_cast<std::byte>(byte);
    }
  }

  QuantScheme scheme_;
  ScaleFormat format_;
  int64_t depth_;
  int64_t groups_;
  int64_t row_bytes_;
  StateDict tensors_;
  std::byte* codes_ = nullptr;
  std::byte* scales_ = nullptr;
  std::byte* zero_points_ = nullptr;  // these two: null where the scheme has none
  std::byte* minimums_ = nullptr;
};

absl::StatusOr<Tensor> FloatTensor(std::span<const float> values) {
  return Tensor::FromVector<float>(Shape{static_cast<int64_t>(values.size())}, DType::kFloat32, values);
}

// As many rows at a time as the kernel takes; at the end some of them twice, which are written once.
absl::Status QuantizeRows(const WeightReader& weight, const QuantScheme& scheme, const RowRules& rules,
                          CodeWriter& writer) {
  const RowKernel& kernel = RowKernels().back();
  const int64_t groups = rules.groups;
  const auto block_values = static_cast<size_t>(kernel.rows * weight.depth);
  FirstIndex unreached;  // row * groups + group
  ParallelFor((weight.rows + kernel.rows - 1) / kernel.rows, [&](int64_t index) {
    const int64_t first = index * kernel.rows;
    const int64_t count = std::min<int64_t>(kernel.rows, weight.rows - first);
    std::vector<float> values(block_values);
    std::vector<uint8_t> codes(block_values);
    std::vector<GroupCodes> grids(static_cast<size_t>(kernel.rows * groups));
    for (int64_t row = 0; row < kernel.rows; ++row) {
      weight.Read(first + std::min(row, count - 1), values.data() + row * weight.depth);
    }
    std::byte* const scratch = ThreadScratch(static_cast<size_t>(rules.ScratchBytes(kernel.rows)));
    kernel.quantize(rules, {values.data(), codes.data(), grids.data(), scratch});
    for (int64_t row = 0; row < count; ++row) {
      const GroupCodes* const written = grids.data() + row * groups;
      for (int64_t group = 0; group < groups; ++group) {
        if (!written[group].reached) return unreached.Report((first + row) * groups + group);
        writer.WriteGroup(first + row, group, written[group]);
      }
      writer.WriteCodes(first + row, codes.data() + row * weight.depth);
    }
  });
  if (!unreached.get().has_value()) return absl::OkStatus();
  const char* const further = scheme.scale_type == ir::ScaleType::kBFloat16 ? "float32" : "bfloat16 or float32";
  return absl::FailedPreconditionError(absl::StrCat("weight: row ", *unreached.get() / groups, ", group ",
                                                    *unreached.get() % groups, " is beyond what ", scheme.ToString(),
                                                    " can store: its scales end at ", rules.grid.format.greatest,
                                                    "; use a scheme with ", further, " scales"));
}

// What the error of each input counts, checked; empty where none is given.
absl::StatusOr<std::vector<float>> ImportanceOf(const QuantizeOptions& options, int64_t inputs) {
  if (!options.importance.has_value()) return std::vector<float>();
  const Tensor& given = *options.importance;
  if (options.scales != ScaleSearch::kMse) {
    return absl::InvalidArgumentError("importance is given, which only scales \"mse\" reads");
  }
  if (given.shape() != Shape{inputs} || !ir::IsFloat(given.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat("importance: found ", given.ToString(), ", expected floats ",
                                                   ShapeString(Shape{inputs}), ", one for each input"));
  }
  CLIKART_ASSIGN_OR_RETURN(const Tensor dense, given.Contiguous());
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, dense.Pin());
  std::vector<float> values(static_cast<size_t>(inputs));
  ConvertFloats(pinned.data, dense.dtype(), reinterpret_cast<std::byte*>(values.data()), DType::kFloat32, inputs);
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !(std::isfinite(value) && value >= 0); });
  if (bad != values.end()) {
    return absl::InvalidArgumentError(absl::StrCat("importance: found ", *bad, " at position ", bad - values.begin(),
                                                   ", expected finite numbers that are not negative"));
  }
  return values;
}

}  // namespace

absl::StatusOr<std::shared_ptr<QLinearWoQ>> QLinearWoQ::Quantize(const Linear& linear, const QuantizeOptions& options) {
  if (linear.body() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        linear.ToString(), " is a group, whose parts hold the weights: quantize the parts, then fuse what comes back"));
  }
  const LayerBody& body = *linear.body();
  const QuantScheme& scheme = options.scheme;
  CLIKART_ASSIGN_OR_RETURN(const std::shared_ptr<QLinearWoQ> layer,
                           Create(linear.in_features(), linear.out_features(),
                                  {.bias = linear.has_bias(),
                                   .scheme = scheme,
                                   .activation = linear.activation(),
                                   .residency = options.residency.value_or(linear.residency()),
                                   .compute = options.compute,
                                   .name = options.name.value_or(linear.name())}));
  CLIKART_ASSIGN_OR_RETURN(const Tensors tensors, TensorsNow(body));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned pinned, tensors[0]->Pin());
  const WeightReader weight = {pinned.data, tensors[0]->dtype(), linear.out_features(), linear.in_features()};
  const auto refused = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(body.label(), ", ", status.message()));
  };

  const absl::StatusOr<std::vector<float>> importance = ImportanceOf(options, weight.depth);
  if (!importance.ok()) return refused(importance.status());
  const absl::StatusOr<float> peak = Peak(weight);
  if (!peak.ok()) return refused(peak.status());
  const float global_scale = scheme.HasGlobalScale() ? GlobalScaleFor(scheme, *peak) : 1.0f;
  CLIKART_ASSIGN_OR_RETURN(CodeWriter writer, CodeWriter::Make(*layer));
  const absl::Status written =
      QuantizeRows(weight, scheme, RowRulesOf(scheme, options.scales, weight.depth, *importance, global_scale), writer);
  if (!written.ok()) return refused(written);

  StateDict& state = writer.tensors();
  if (scheme.HasGlobalScale()) {
    CLIKART_ASSIGN_OR_RETURN(Tensor global, FloatTensor({&global_scale, 1}));
    state.emplace_back("weight_global_scale", std::move(global));
  }
  if (linear.has_bias()) {
    CLIKART_ASSIGN_OR_RETURN(const std::vector<float> values, BiasValues(body, tensors));
    CLIKART_ASSIGN_OR_RETURN(Tensor bias, FloatTensor(values));
    state.emplace_back("bias", std::move(bias));
  }
  CLIKART_RETURN_IF_ERROR(layer->Bind(state, {.assign = true}));
  return layer;
}

}  // namespace clikart
