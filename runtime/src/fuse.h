// What fusing linears and fusing convolutions have in common.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "group_core.h"
#include "layer_body.h"

namespace clikart {

struct FusePart {
  std::shared_ptr<Layer> layer;
  LayerBody* body = nullptr;
  std::shared_ptr<const BodyState> state;
};

// The layers with their states, each bound and given once. Under StructureMutex(), exclusively.
absl::StatusOr<std::vector<FusePart>> TakeParts(const std::string& caller,
                                                std::span<const std::shared_ptr<Layer>> layers);

// The group's activation: the parts' common one, or `asked`. Refuses gated ones on a part, parts that
// disagree, and an `asked` that names another than theirs.
absl::StatusOr<Activation> CommonActivation(const std::string& caller, std::span<const FusePart> parts,
                                            Activation asked);

// The parts under new engines: what the group commits at the end.
struct FuseResult {
  std::shared_ptr<GroupPlan> plan = std::make_shared<GroupPlan>();
  std::vector<std::shared_ptr<BodyState>> states;  // of the parts, without their group yet
  std::vector<Tensor> replaced;                    // whose slots are released after the commit
};

// One engine a part, each over its own tensors.
absl::StatusOr<FuseResult> BuildSideBySide(std::span<const FusePart> parts, Activation activation, Residency residency);
// The parts' states when `engine` serves them all. Where it holds the weights, only metadata stays.
absl::StatusOr<FuseResult> ShareEngine(std::span<const FusePart> parts, std::shared_ptr<Engine> engine);

// The concatenated bias of one kernel; -0.0, which changes no sum, where a part has none.
absl::StatusOr<std::vector<float>> ConcatenatedBias(std::span<const FusePart> parts);

// Counts and logs why the parts will run side by side; an error under CLIKART_STRICT=1.
absl::Status ReportReasons(const std::string& caller, const GroupCore::Traits& traits);

// Makes the group and swaps the parts' states; `released` gets the slots that the group replaces. Nothing
// fails from here on.
std::shared_ptr<GroupCore> CommitGroup(GroupCore::Traits traits, std::span<const FusePart> parts, FuseResult result,
                                       ReleaseLater& released);

}  // namespace clikart
