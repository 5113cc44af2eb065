// A layer's parameters and their life: unbound, bound, packed, fused.
//
// A layer's whole state is one immutable value in a Slot. A forward takes it once and keeps it, so a
// load in another thread is seen wholly or not at all. Who may replace it:
//   - loads, fuses and dissolves, which change several layers: under StructureMutex(), exclusively;
//   - the first forward of a layer, which packs: under StructureMutex() shared, and the layer's own mutex.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/nn.h"
#include "engine.h"
#include "slot.h"

namespace clikart {

class ConvGrid;
class GroupCore;
struct Rows;

// Held over a fork, so that the child finds no load, fuse or pack half done.
std::shared_mutex& StructureMutex();

// Odd while a load replaces states; a reader of several layers retries when it changed meanwhile.
class LoadEpoch {
 public:
  static uint64_t Now();
  LoadEpoch();  // under StructureMutex(), exclusively
  ~LoadEpoch();
};

using Tensors = std::vector<std::optional<Tensor>>;  // by the order of Parameters(); none: not loaded

struct BodyState {
  LayerState kind = LayerState::kUnbound;
  // A weight that the engine holds is here as metadata only: its slot is released.
  Tensors tensors;
  std::shared_ptr<Engine> engine;    // packed and fused
  int64_t first_row = 0;             // this layer's first weight row in the engine
  std::shared_ptr<GroupCore> group;  // fused
};

// What a layer computes, whatever its weights.
struct LayerTraits {
  std::string type;                       // "Linear"
  std::string name;                       // as given; may be empty
  std::string detail;                     // what only this type prints: "kernel_size=[3, 3]"
  std::vector<ParameterSpec> parameters;  // the weight first
  int64_t inputs = 0;                     // width of a row of x
  int64_t rows = 0;                       // weight rows
  ir::KernelSpec spec;  // of this layer served alone; x, y and what follows from the tensors left open
  Residency residency = Residency::kPacked;
  std::shared_ptr<ConvGrid> grid;  // convolutions
  int64_t groups = 1;              // of a convolution, as given
  int64_t slices = 1;              // kernels of `spec` side by side: its groups, or 1 where it is depthwise
};

// "Linear 'q'", or "Linear(64 -> 64)" for a layer without a name: what messages call it.
std::string LayerLabel(const std::string& type, const std::string& name, int64_t inputs, int64_t rows);

class LayerBody {
 public:
  explicit LayerBody(LayerTraits traits);
  virtual ~LayerBody() = default;

  const LayerTraits& traits() const { return traits_; }
  const std::vector<ParameterSpec>& parameters() const { return traits_.parameters; }
  std::string label() const { return LayerLabel(traits_.type, traits_.name, traits_.inputs, traits_.rows); }
  int64_t outputs() const { return traits_.spec.gated() ? traits_.rows / 2 : traits_.rows; }
  std::optional<size_t> Find(std::string_view parameter) const;

  std::shared_ptr<const BodyState> state() const { return slot_.Load(); }
  // Under StructureMutex(), exclusively.
  void Replace(std::shared_ptr<const BodyState> state) { slot_.Store(std::move(state)); }
  // The state of a layer with these tensors: bound, or unbound when a required one is absent.
  std::shared_ptr<const BodyState> StateOf(Tensors tensors) const;

  // A packed state: this one, or the one that packing now makes. FailedPrecondition when the layer is
  // unbound or part of a group.
  absl::StatusOr<std::shared_ptr<const BodyState>> Packed();

  // Reads a parameter of `state` back.
  absl::StatusOr<std::optional<Tensor>> Read(const BodyState& state, size_t index) const;
  // All of them in memory that no engine holds.
  absl::StatusOr<Tensors> ReadAll(const BodyState& state) const;

  // Values that no shape shows: zero points, group indices. The message has no layer name.
  virtual absl::Status Check(const Tensors& tensors) const;
  // The kernel's spec for these tensors, under `activation`.
  virtual ir::KernelSpec SpecFor(const Tensors& tensors, ir::Activation activation) const;
  // What serves these tensors alone.
  virtual absl::StatusOr<std::shared_ptr<Engine>> Build(const Tensors& tensors, ir::Activation activation,
                                                        Residency residency) const = 0;

 private:
  const LayerTraits traits_;
  Slot<const BodyState> slot_;
  std::mutex pack_mutex_;
};

// Parameter `name`'s memory, which must be there: what Build reads.
absl::StatusOr<Tensor::Pinned> PinParameter(const LayerBody& body, const Tensors& tensors, size_t index);
// A float parameter's values as f32; it must be there.
absl::StatusOr<std::vector<float>> FloatsOf(const LayerBody& body, const Tensors& tensors, size_t index);
// A bias parameter's values as f32; empty without one.
absl::StatusOr<std::vector<float>> BiasValues(const LayerBody& body, const Tensors& tensors);
// The bias spec of a float layer: f32 or the layer's dtype, kept as given.
ParameterSpec BiasParameter(int64_t rows, DType layer_dtype);
// The tensor in a slot of its own: once the old slot is released, views held so far are storage-free, and
// the memory stays.
absl::StatusOr<Tensor> InNewSlot(const Tensor& tensor);

// Releases slots when it goes. Declared before a lock it does so without that lock: freeing memory may run
// its owner's code, which may want a lock of its own (Python's, say).
class ReleaseLater {
 public:
  ReleaseLater() = default;
  ~ReleaseLater() {
    for (const Tensor& tensor : tensors_) tensor.storage()->Release();
  }
  ReleaseLater(const ReleaseLater&) = delete;
  ReleaseLater& operator=(const ReleaseLater&) = delete;
  void Add(Tensor tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace clikart
