// Blocks that were given up and wait for their next use.
//
// A forward of many rows writes megabytes of outputs that live for one layer. Taken from the system each time, their
// pages are made and cleared at every call, which costs more than a tenth of the forward where a hypervisor has to
// find them too.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace clikart {

struct Block {
  std::byte* data = nullptr;  // of AllocateBlock
  size_t bytes = 0;
};

class BlockCache {
 public:
  // Keeps up to so many bytes.
  explicit BlockCache(size_t budget) : budget_(budget) {}
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // A kept block of at least that size, or a new one with null data where the system has none.
  Block Take(size_t bytes);
  // Keeps the block; what waited longest is freed for it.
  void Give(Block block);
  size_t kept_bytes() const;

 private:
  const size_t budget_;
  // Of what follows. Nobody waits for it: a thread that finds it taken does without, and so does a child that was
  // forked while another thread held it. (ThreadSanitizer does not see absl::Mutex::TryLock.)
  mutable std::mutex mutex_;
  std::vector<Block> kept_;  // in the order they were given
  size_t kept_bytes_ = 0;
};

}  // namespace clikart
