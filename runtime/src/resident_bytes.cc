// Module::ResidentBytes.
#include "resident_bytes.h"

#include "clikart/nn.h"
#include "layer_body.h"

namespace clikart {
namespace {

void AddLayer(const Layer& layer, MemoryTally& tally) {
  if (layer.body() == nullptr) return;
  const std::shared_ptr<const BodyState> state = layer.body()->state();
  for (const std::optional<Tensor>& tensor : state->tensors) {
    if (tensor.has_value() && tensor->storage() != nullptr) tally.Add(tensor->storage()->memory());
  }
  if (state->engine != nullptr) state->engine->AddTo(tally);
  tally.Keep(state);
}

}  // namespace

int64_t Module::ResidentBytes() {
  MemoryTally tally;
  for (const auto& [name, module] : NamedModules()) {
    if (const auto* const layer = dynamic_cast<const Layer*>(module.get())) AddLayer(*layer, tally);
    if (const auto* const group = dynamic_cast<const Group*>(module.get())) {
      for (const auto& part : group->parts()) AddLayer(*part, tally);
    }
  }
  return tally.total();
}

}  // namespace clikart
