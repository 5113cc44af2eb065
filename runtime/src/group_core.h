// What a group shares with its parts, and how it serves them.
//
// The core outlives the group object as long as a part is fused into it. It holds its parts weakly (they
// hold the core), the group object holds them for good.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/nn.h"
#include "conv_grid.h"
#include "engine.h"
#include "layer_body.h"
#include "slot.h"

namespace clikart {

// One kernel's share of a group: all parts when fused, else one of them.
struct GroupUnit {
  std::shared_ptr<Engine> engine;
  KernelSet* kernels = nullptr;     // the engine's, under the activation it applies here
  const LayerBody* body = nullptr;  // whose input it checks; the group object keeps it
  int64_t column = 0;               // of the concatenation
};

struct GroupPlan {
  std::vector<GroupUnit> units;
};

// Why parts run side by side.
struct GroupReason {
  std::string name;    // "dtypes": what counters show
  std::string detail;  // which parts, found and expected
};

class GroupCore {
 public:
  struct Traits {
    std::string name;
    Activation activation = Activation::kNone;  // of the whole group
    Residency residency = Residency::kPacked;
    int64_t width = 0;                 // of the concatenation, before a gate halves it
    std::vector<GroupReason> reasons;  // why it runs side by side: empty when fused
  };

  GroupCore(Traits traits, std::vector<std::shared_ptr<LayerBody>> parts, std::shared_ptr<const GroupPlan> plan);

  const Traits& traits() const { return traits_; }
  std::string label() const;
  bool fused() const { return traits_.reasons.empty() && plan_.Load() != nullptr; }
  int64_t outputs() const { return ir::IsGated(traits_.activation) ? traits_.width / 2 : traits_.width; }
  // The activation that each unit's kernel applies: a gated one over parts side by side is applied after.
  Activation UnitActivation(bool side_by_side) const {
    return side_by_side && ir::IsGated(traits_.activation) ? Activation::kNone : traits_.activation;
  }
  bool GateAfter(const GroupPlan& plan) const { return ir::IsGated(traits_.activation) && plan.units.size() > 1; }

  // Compiles the kernels of `plan` for inputs of that dtype; their signatures.
  absl::StatusOr<std::vector<std::string>> Prepare(const GroupPlan& plan, DType input_dtype) const;

  // Null once dissolved.
  std::shared_ptr<const GroupPlan> plan() const { return plan_.Load(); }
  // Under StructureMutex(), exclusively.
  void Dissolve() { plan_.Store(nullptr); }
  // Parts that are still alive.
  std::vector<std::shared_ptr<LayerBody>> parts() const;

 private:
  const Traits traits_;
  const std::vector<std::weak_ptr<LayerBody>> parts_;
  Slot<const GroupPlan> plan_;
};

// The group's side of a forward, shared by LinearGroup and ConvGroup.
class GroupServer {
 public:
  GroupServer(std::shared_ptr<GroupCore> core, std::vector<std::shared_ptr<Layer>> parts)
      : core_(std::move(core)), parts_(std::move(parts)) {}

  GroupCore& core() const { return *core_; }
  const std::vector<std::shared_ptr<Layer>>& parts() const { return parts_; }
  std::vector<int64_t> split_sizes() const;
  absl::StatusOr<Tensor> ForwardRows(const Tensor& x) const;
  absl::StatusOr<Tensor> ForwardImages(const Tensor& x) const;
  absl::StatusOr<std::vector<std::string>> Prepare(const Shape& input_shape, DType input_dtype) const;
  std::string Explain(const std::string& type) const;
  std::string ToString(const std::string& type) const;

 private:
  // The plan in force: the fused one, or one that reads the parts' present states at one moment.
  absl::StatusOr<std::shared_ptr<const GroupPlan>> Plan() const;

  const std::shared_ptr<GroupCore> core_;
  const std::vector<std::shared_ptr<Layer>> parts_;
};

}  // namespace clikart
