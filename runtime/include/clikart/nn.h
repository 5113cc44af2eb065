// Modules, layers and groups. spec/api.md in words; here the types.
//
// Thread safety: a forward may run on any number of threads while another thread loads, fuses or
// dissolves; it sees all old or all new weights of its layer. Everything else (registering children,
// setting names) is the owner's, as in any container.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/ir/activation.h"
#include "clikart/ir/quant_scheme.h"
#include "clikart/tensor.h"

namespace clikart {

using ir::Activation;
using ir::QuantScheme;

// In the order of registration, names as in the checkpoint.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
  bool strict = true;   // an absent or unknown name is an error
  bool assign = false;  // keep the given memory; needs the exact dtype
};

struct LoadReport {
  std::vector<std::string> missing, unexpected;
};

enum class Residency : uint8_t { kPacked, kPerCall };
enum class Compute : uint8_t { kFloat, kInt8 };

std::string_view Name(Residency residency);  // "packed", "per_call"
std::string_view Name(Compute compute);
absl::StatusOr<Residency> ParseResidency(std::string_view text);
absl::StatusOr<Compute> ParseCompute(std::string_view text);  // "float", "int8"

class Layer;
class LayerBody;  // a layer's parameters and their life (runtime/src/layer_body.h)

// A node of the model. Errors: InvalidArgument stands for Python's ValueError, FailedPrecondition
// (and the rest) for ClikaRTError; ToPythonError in the bindings is the one place that maps them.
class Module : public std::enable_shared_from_this<Module> {
 public:
  virtual ~Module() = default;

  // Unimplemented where a subclass does not define it.
  virtual absl::StatusOr<Tensor> Forward(const Tensor& x);
  virtual std::string TypeName() const { return "Module"; }
  virtual std::string ToString() const;

  // Replaces a child of that name, keeping its place. InvalidArgument for an empty name or a dot.
  absl::Status RegisterChild(std::string_view name, std::shared_ptr<Module> child);
  bool RemoveChild(std::string_view name);
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }
  // Self first ("" or `prefix`), then depth first; each module once.
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> NamedModules(std::string_view prefix = "");

  // Bytes of the memory that holds the parameters of every layer below (its tensors, its pack, the pack of the
  // group it is fused into), each memory counted once. Memory kept by assign counts whole.
  int64_t ResidentBytes();
  // Every parameter of every layer below, by its checkpoint name. A tied layer appears under each name.
  absl::StatusOr<StateDict> GetStateDict(std::string_view prefix = "");
  // All or nothing over the whole tree: every entry is checked and converted first, then all layers
  // and groups change. A part that gets a tensor dissolves its group.
  absl::StatusOr<LoadReport> LoadStateDict(const StateDict& state, const LoadOptions& options = {});

 private:
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
};

class Sequential : public Module {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);  // children "0", "1", ...
  absl::StatusOr<Tensor> Forward(const Tensor& x) override;
  std::string TypeName() const override { return "Sequential"; }
};

class ModuleList : public Module {
 public:
  explicit ModuleList(std::vector<std::shared_ptr<Module>> modules);
  absl::Status Append(std::shared_ptr<Module> module);
  std::string TypeName() const override { return "ModuleList"; }
};

struct ParameterSpec {
  std::string name;  // "weight"
  Shape shape;
  DType dtype;
  bool required = true;
  bool float_converts = false;         // other float dtypes are converted on load
  bool single_value = false;           // any shape of one element will do
  std::vector<DType> also_taken = {};  // dtypes kept as given beside `dtype`
};

enum class LayerState : uint8_t { kUnbound, kBound, kPacked, kFused };
std::string_view Name(LayerState state);

// A module with parameters of its own (a group of layers has none).
class Layer : public Module {
 public:
  const std::string& name() const { return name_; }  // for messages; may be empty
  // In the order of the state dict, the weight first.
  virtual std::vector<ParameterSpec> Parameters() const;
  virtual LayerState state() const;
  // Reads a parameter back; rebuilt from the pack when there is one. NotFound where the layer has
  // none of that name (an optional one that was not loaded counts so), FailedPrecondition when unbound.
  virtual absl::StatusOr<Tensor> Parameter(std::string_view name) const;
  // LoadStateDict for this layer alone: bind({{"weight", w}, {"bias", b}}).
  absl::Status Bind(const StateDict& tensors, const LoadOptions& options = {});
  // What is fused, which kernel serves it, or why specialization was rejected. Plans if need be.
  virtual std::string Explain() const;
  // Packs and compiles for inputs of that dtype, without running; the signatures of the kernels. An empty
  // shape stands for any that fits; another one is checked as a forward would. FailedPrecondition when
  // unbound or fused.
  virtual absl::StatusOr<std::vector<std::string>> Prepare(const Shape& input_shape, DType input_dtype);
  std::string ToString() const override;

  // For the runtime: what loading and fusing work on; null for a group.
  const std::shared_ptr<LayerBody>& body() const { return body_; }

 protected:
  Layer(std::string name, std::shared_ptr<LayerBody> body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string name_;
  std::shared_ptr<LayerBody> body_;
};

struct LinearOptions {
  bool bias = true;
  DType dtype = DType::kFloat32;
  Activation activation = Activation::kNone;
  Residency residency = Residency::kPacked;
  std::string name = {};
};

// [*, in_features] -> [*, out_features]; a gated activation halves the outputs and needs bias = false.
class Linear : public Layer {
 public:
  static absl::StatusOr<std::shared_ptr<Linear>> Create(int64_t in_features, int64_t out_features,
                                                        const LinearOptions& options = {});
  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;  // weight rows; a group: the sum
  virtual bool has_bias() const = 0;
  virtual DType dtype() const = 0;
  virtual Activation activation() const = 0;
  virtual Residency residency() const = 0;
  std::string TypeName() const override { return "Linear"; }

 protected:
  using Layer::Layer;
};

// How Quantize chooses scales: the least that covers each group, or the one with the least squared error.
enum class ScaleSearch : uint8_t { kMinMax, kMse };
std::string_view Name(ScaleSearch search);
absl::StatusOr<ScaleSearch> ParseScaleSearch(std::string_view text);  // "minmax", "mse"

struct QuantizeOptions {
  QuantScheme scheme = {};
  ScaleSearch scales = ScaleSearch::kMinMax;
  // [in_features], finite and not negative: what a squared error in each input's weights counts for kMse. The mean
  // square of what the input takes makes it the error of the output. None: all count the same.
  std::optional<Tensor> importance = {};
  Compute compute = Compute::kFloat;
  std::optional<Residency> residency = {};  // none: the linear's
  std::optional<std::string> name = {};     // none: the linear's
};

struct QLinearWoQOptions {
  bool bias = true;
  QuantScheme scheme = {};
  Activation activation = Activation::kNone;
  Residency residency = Residency::kPacked;
  Compute compute = Compute::kFloat;
  std::string name = {};
};

class QLinearWoQ : public Layer {
 public:
  static absl::StatusOr<std::shared_ptr<QLinearWoQ>> Create(int64_t in_features, int64_t out_features,
                                                            const QLinearWoQOptions& options);
  // A layer of the linear's shape, bias and activation whose codes are nearest to its weight, with scales rounded
  // to their storage type first. With kMinMax a weight is off by half a step at most. The linear may be packed or
  // part of a group, and stays as it is. InvalidArgument: an importance that does not fit. FailedPrecondition: the
  // linear is unbound or a group itself, a weight is NaN or infinite, or weights are beyond what the scales can store.
  static absl::StatusOr<std::shared_ptr<QLinearWoQ>> Quantize(const Linear& linear, const QuantizeOptions& options);
  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  virtual bool has_bias() const = 0;
  virtual const QuantScheme& scheme() const = 0;
  virtual Compute compute() const = 0;
  virtual Activation activation() const = 0;
  virtual Residency residency() const = 0;
  std::string TypeName() const override { return "QLinearWoQ"; }

 protected:
  using Layer::Layer;
};

struct QLinearOptions {
  bool bias = true;
  Activation activation = Activation::kNone;
  std::string name = {};
};

class QLinear : public Layer {
 public:
  static absl::StatusOr<std::shared_ptr<QLinear>> Create(int64_t in_features, int64_t out_features,
                                                         const QLinearOptions& options = {});
  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  virtual bool has_bias() const = 0;
  virtual Activation activation() const = 0;
  std::string TypeName() const override { return "QLinear"; }

 protected:
  using Layer::Layer;
};

enum class PaddingMode : uint8_t { kZeros, kReflect, kReplicate, kCircular };
std::string_view Name(PaddingMode mode);
absl::StatusOr<PaddingMode> ParsePaddingMode(std::string_view text);

struct ConvOptions {
  Shape kernel_size = {};  // 1 to 3 numbers: the spatial rank
  Shape stride = {};       // empty: ones
  Shape dilation = {};     // empty: ones
  enum class Padding : uint8_t { kExplicit, kValid, kSame } padding_kind = Padding::kExplicit;
  std::vector<std::pair<int64_t, int64_t>> padding = {};  // (before, after) an axis; empty: zeros
  PaddingMode padding_mode = PaddingMode::kZeros;
  int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::kFloat32;
  Activation activation = Activation::kNone;
  std::string name = {};
};

// [batch, *spatial, in_channels] -> [batch, *spatial', out_channels].
class Conv : public Layer {
 public:
  static absl::StatusOr<std::shared_ptr<Conv>> Create(int64_t in_channels, int64_t out_channels,
                                                      const ConvOptions& options);
  virtual int64_t in_channels() const = 0;
  virtual int64_t out_channels() const = 0;  // a group: the sum
  virtual const ConvOptions& options() const = 0;
  std::string TypeName() const override { return "Conv"; }

 protected:
  using Layer::Layer;
};

struct FuseOptions {
  std::optional<std::string> name = {};
  Activation activation = Activation::kNone;
};

// What FuseLinears and FuseConvs return has this beside its Linear or Conv side.
class Group {
 public:
  virtual ~Group() = default;
  virtual std::vector<std::shared_ptr<Layer>> parts() const = 0;
  // Output columns of each part; of a gated group, whose halves become one, its whole width alone.
  virtual std::vector<int64_t> split_sizes() const = 0;
  virtual bool fused() const = 0;           // one kernel serves it now
  virtual Residency residency() const = 0;  // the parts' own when they agree, else packed
};

// A dissolved group goes on serving, side by side, with whatever weights its parts have now; once a
// part has been fused into another group, the old group's forward is FailedPrecondition.
class LinearGroup : public Linear, public Group {
 public:
  Residency residency() const override = 0;

 protected:
  using Linear::Linear;
};
class ConvGroup : public Conv, public Group {
 protected:
  using Conv::Conv;
};

// functions.md. InvalidArgument: fewer than two layers, or (a C++ caller's TypeError) a layer that is
// neither a Linear nor a QLinearWoQ; FailedPrecondition for the rest.
absl::StatusOr<std::shared_ptr<LinearGroup>> FuseLinears(std::span<const std::shared_ptr<Layer>> layers,
                                                         const FuseOptions& options = {});
absl::StatusOr<std::shared_ptr<ConvGroup>> FuseConvs(std::span<const std::shared_ptr<Conv>> layers,
                                                     const FuseOptions& options = {});

}  // namespace clikart
