// Memory that many hold, counted once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "clikart/tensor.h"

namespace clikart {

class MemoryTally {
 public:
  void Add(const std::shared_ptr<Memory>& memory) {
    if (memory == nullptr) return;
    Add(memory.get(), static_cast<int64_t>(memory->bytes()));
    Keep(memory);
  }
  // `owner` tells it from other memory.
  void Add(const void* owner, int64_t bytes) { bytes_.emplace(owner, bytes); }
  // What was counted stays alive until the end, so that no address stands for two.
  void Keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [owner, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  absl::flat_hash_map<const void*, int64_t> bytes_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace clikart
