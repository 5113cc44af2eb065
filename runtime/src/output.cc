#include "output.h"

#include "absl/strings/str_cat.h"
#include "block.h"
#include "block_cache.h"
#include "environment.h"
#include "first_use.h"

namespace clikart {
namespace {

BlockCache& OutputBlocks() {
  // Never destroyed: outputs may outlive everything else of a process.
  static constinit FirstUse<BlockCache> blocks;
  return blocks.Get([] {
    const absl::StatusOr<Environment>& environment = Environment::Get();
    return new BlockCache(environment.ok() ? static_cast<size_t>(environment->output_cache_bytes) : 0);
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<Memory>> OutputMemory(size_t bytes) {
  if (bytes <= kSmallMemory) return Memory::Allocate(bytes);
  const Block block = OutputBlocks().Take(bytes);
  if (block.data == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  std::shared_ptr<void> owner(block.data, [block](void*) { OutputBlocks().Give(block); });
  return Memory::Wrap(block.data, bytes, std::move(owner));
}

}  // namespace clikart
