// What runs one contraction: its kernels and the weights they read.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/codegen/kernel.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"
#include "clikart/tensor.h"
#include "code_store.h"
#include "dispatch.h"
#include "kernel_cache.h"
#include "packing.h"
#include "resident_bytes.h"

namespace clikart {

// The kernels of one spec by input and output dtype, each compiled when it is first asked for; later
// calls are one atomic load.
class KernelSet {
 public:
  // `base` with its x, y and product left open: they differ from input to input. How weights are packed does
  // not, so its interleave is set here. Integer contractions give y as kFloat32 or, requantized, as x.
  explicit KernelSet(const ir::KernelSpec& base);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  const ir::KernelSpec& base() const { return base_; }
  absl::StatusOr<const Kernel*> Get(DType x, DType y) {
    const Kernel* kernel = ready_[Index(x, y)].load(std::memory_order_acquire);
    if (kernel != nullptr) return kernel;
    return Compile(x, y);
  }
  // What a forward returns for inputs of dtype `x`.
  DType OutputFor(DType x) const {
    return base_.contraction == ir::Contraction::kInteger && !base_.requantize ? DType::kFloat32 : x;
  }
  bool Takes(DType x) const {
    return base_.contraction == ir::Contraction::kInteger ? x == DType::kInt8 || x == DType::kUInt8 : ir::IsFloat(x);
  }
  // Those compiled so far.
  std::vector<std::shared_ptr<const Kernel>> Compiled() const;

 private:
  static constexpr size_t kEntries = 10;  // five input dtypes; y is x or float32
  static size_t Index(DType x, DType y) { return 2 * static_cast<size_t>(x) + (x == y ? 0 : 1); }
  absl::StatusOr<const Kernel*> Compile(DType x, DType y);

  ir::KernelSpec base_;  // constant once constructed
  std::array<std::atomic<const Kernel*>, kEntries> ready_{};
  // Each is set once. No mutex guards them: a fork during a compilation would leave the child a locked one.
  std::array<std::atomic<const std::shared_ptr<const Kernel>*>, kEntries> owned_{};
};

// Constant once built, but for kernels that are added on demand. `slices` kernels of one spec lie side
// by side for a grouped convolution, else one.
class Engine {
 public:
  explicit Engine(const ir::KernelSpec& base);

  // Weights into panels, in parallel. `slices` holds the rows of each slice.
  absl::Status Pack(std::span<const std::vector<WeightRows>> slices);
  // Float weights that stay as they are and are packed panel by panel in each call. `memory` keeps the
  // rows alive.
  void ServePerCall(std::vector<WeightRows> rows, std::vector<std::shared_ptr<Memory>> memory);
  // Quantized weights: packed now, or kept as loaded with what keeps them alive.
  absl::Status PackCodes(std::vector<CodePart> parts);
  void ServeCodesPerCall(std::vector<CodePart> parts, std::vector<std::shared_ptr<Memory>> memory);
  // One bias value a weight row over all slices, or none.
  void SetBias(std::span<const float> values);
  // After Pack: the arrays of `quant` are made here, from the pack and from one scale a weight row.
  void SetInteger(const codegen::IntegerQuant& quant, float input_scale, std::span<const float> weight_scales);
  // The group's one weight, its rows in order (per_call residency).
  void SetJoined(Tensor weight) { joined_ = std::move(weight); }

  KernelSet& kernels() { return kernels_; }
  // The same weights under another pointwise activation.
  KernelSet& KernelsFor(ir::Activation activation);
  const ir::KernelSpec& spec() const { return kernels_.base(); }
  int64_t slices() const { return slices_; }
  int64_t outputs() const { return spec().outputs(); }  // of one slice
  const ir::PanelLayout& layout() const { return layout_; }
  bool joined() const { return joined_.has_value(); }
  int64_t weight_bytes() const;
  // All memory that it keeps: weights, biases, columns.
  void AddTo(MemoryTally& tally) const;

  // The parameter is here and nowhere else.
  bool Holds(std::string_view parameter) const;
  // A parameter that it holds, rows [first_row, ...) as the checkpoint has them, bit for bit; `shape[0]` is how many.
  // A copy from the pack, a view on the joined weight.
  absl::StatusOr<Tensor> Read(std::string_view parameter, int64_t first_row, const Shape& shape, DType dtype) const;

  // Weights, bias and panels of slice 0 (kernel, rows and places are the caller's).
  void Describe(Launch& launch) const {
    launch.args.weights = weights_;
    launch.args.codes = codes_ == nullptr ? nullptr : &codes_->args();
    launch.args.integer = integer_.has_value() ? &integer_->quant : nullptr;
    launch.args.panels = panels_;
    launch.args.bias = bias_.empty() ? nullptr : bias_.data();
    launch.panel_bytes = panel_bytes_;
    if (packs_per_call_) launch.pack = &PackForCall;
  }
  // Moves a tile's args on to another slice.
  void MoveToSlice(int64_t slice, codegen::TileArgs& args) const {
    if (args.weights != nullptr) args.weights += slice * panels_ * panel_bytes_;
    if (args.bias != nullptr) args.bias += slice * panels_ * ir::kPanelLanes;
  }

 private:
  // What `quant` points at.
  struct IntegerColumns {
    codegen::IntegerQuant quant;
    std::vector<float> scales;
    std::vector<int64_t> sums;
  };

  absl::StatusOr<Tensor> ReadWeight(int64_t first_row, const Shape& shape) const;
  // Launch::context points at something whose first member is the Engine: see EngineContext.
  static void PackForCall(void* context, int64_t copy, int64_t first, int64_t count, std::byte* out);

  KernelSet kernels_;
  ir::PanelLayout layout_;  // of one slice
  int64_t slices_ = 1;
  int64_t panels_ = 0;
  int64_t panel_bytes_ = 0;
  const std::byte* weights_ = nullptr;
  std::shared_ptr<Memory> pack_;
  std::vector<WeightRows> rows_;
  std::unique_ptr<CodeStore> codes_;  // quantized weights
  bool packs_per_call_ = false;
  std::optional<IntegerColumns> integer_;
  std::vector<std::shared_ptr<Memory>> memory_;
  std::vector<float> bias_;
  std::optional<Tensor> joined_;
  std::vector<std::unique_ptr<KernelSet>> others_;  // under FirstUseMutex()
};

// What Launch::context points at.
struct EngineContext {
  const Engine* engine = nullptr;
};

}  // namespace clikart
