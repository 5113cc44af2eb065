#include "group_core.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "serve.h"
#include "status_macros.h"

namespace clikart {

GroupCore::GroupCore(Traits traits, std::vector<std::shared_ptr<LayerBody>> parts,
                     std::shared_ptr<const GroupPlan> plan)
    : traits_(std::move(traits)), parts_(parts.begin(), parts.end()), plan_(std::move(plan)) {}

std::string GroupCore::label() const {
  if (!traits_.name.empty()) return absl::StrCat("'", traits_.name, "'");
  std::string names;
  for (const auto& weak : parts_) {
    const std::shared_ptr<LayerBody> part = weak.lock();
    const std::string name = part == nullptr ? "(gone)" : part->traits().name;
    absl::StrAppend(&names, names.empty() ? "" : " + ", name.empty() ? "(unnamed)" : name);
  }
  return absl::StrCat("of ", names);
}

std::vector<std::shared_ptr<LayerBody>> GroupCore::parts() const {
  std::vector<std::shared_ptr<LayerBody>> alive;
  for (const auto& weak : parts_) {
    if (std::shared_ptr<LayerBody> part = weak.lock(); part != nullptr) alive.push_back(std::move(part));
  }
  return alive;
}

std::vector<int64_t> GroupServer::split_sizes() const {
  std::vector<int64_t> sizes;
  const bool gated = ir::IsGated(core_->traits().activation);
  if (gated) return {core_->outputs()};
  for (const auto& part : parts_) sizes.push_back(part->body()->traits().rows);
  return sizes;
}

absl::StatusOr<std::shared_ptr<const GroupPlan>> GroupServer::Plan() const {
  for (;;) {
    if (std::shared_ptr<const GroupPlan> plan = core_->plan(); plan != nullptr) return plan;
    const uint64_t epoch = LoadEpoch::Now();
    if (epoch % 2 == 1) {
      std::this_thread::yield();
      continue;
    }
    auto plan = std::make_shared<GroupPlan>();
    int64_t column = 0;
    for (const auto& part : parts_) {
      LayerBody& body = *part->body();
      std::shared_ptr<const BodyState> state = body.state();
      if (state->kind != LayerState::kPacked) {
        CLIKART_ASSIGN_OR_RETURN(state, body.Packed());
      }
      KernelSet& kernels = state->engine->KernelsFor(core_->UnitActivation(true));
      plan->units.push_back({state->engine, &kernels, &body, column});
      column += body.traits().rows;
    }
    if (LoadEpoch::Now() == epoch) return plan;
  }
}

absl::StatusOr<std::vector<std::string>> GroupCore::Prepare(const GroupPlan& plan, DType input_dtype) const {
  const DType y = GateAfter(plan) ? DType::kFloat32 : input_dtype;
  std::vector<std::string> signatures;
  for (const GroupUnit& unit : plan.units) {
    if (unit.engine->outputs() == 0) continue;
    CLIKART_ASSIGN_OR_RETURN(const Kernel* kernel, unit.kernels->Get(input_dtype, y));
    signatures.push_back(kernel->signature);
  }
  return signatures;
}

absl::StatusOr<std::vector<std::string>> GroupServer::Prepare(const Shape& input_shape, DType input_dtype) const {
  CLIKART_ASSIGN_OR_RETURN(const std::shared_ptr<const GroupPlan> plan, Plan());
  for (const GroupUnit& unit : plan->units) {
    CLIKART_RETURN_IF_ERROR(input_shape.empty() ? CheckInputDType(*unit.body, input_dtype)
                                                : CheckInput(*unit.body, input_shape, input_dtype));
  }
  return core_->Prepare(*plan, input_dtype);
}

}  // namespace clikart
