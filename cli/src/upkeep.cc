// verify, prune, clear.
#include <limits>

#include "clikart/cache/object_file.h"
#include "command.h"
#include "environment.h"
#include "json.h"
#include "table.h"

namespace clikart::cli {
namespace {

int Tell(const Invocation& invocation, int64_t removed) {
  if (invocation.json) {
    *invocation.out << JsonObject().Number("removed", removed).ToString() << "\n";
  } else {
    *invocation.out << "removed " << removed << (removed == 1 ? " entry\n" : " entries\n");
  }
  return kDone;
}

// A folder that does not exist holds nothing.
int Tell(const Invocation& invocation, const absl::StatusOr<int64_t>& removed) {
  if (absl::IsNotFound(removed.status())) return Tell(invocation, 0);
  return removed.ok() ? Tell(invocation, *removed) : Fail(invocation, removed.status());
}

int PruneOtherBuilds(const Invocation& invocation) {
  const absl::StatusOr<std::vector<Found>> all = ReadAll(invocation);
  if (!all.ok()) return Fail(invocation, all.status());
  const cache::Folder folder({.path = invocation.path});
  int64_t removed = 0;
  for (const Found& found : *all) {
    if (!found.entry.ok() || found.entry->key.build == invocation.build) continue;
    if (const absl::Status status = folder.Remove(found.file.name); !status.ok()) return Fail(invocation, status);
    ++removed;
  }
  return Tell(invocation, removed);
}

}  // namespace

int Verify(const Invocation& invocation) {
  const absl::StatusOr<std::vector<Found>> all = ReadAll(invocation);
  if (!all.ok()) return Fail(invocation, all.status());
  std::vector<std::string> items;
  int64_t bad = 0;
  for (const Found& found : *all) {
    if (found.entry.ok()) continue;
    ++bad;
    const std::string why(found.entry.status().message());
    items.push_back(JsonObject().Text("file", found.file.name).Text("problem", why).ToString());
    if (!invocation.json) *invocation.out << why << "\n";
  }
  if (invocation.json) {
    *invocation.out
        << JsonObject().Number("entries", static_cast<int64_t>(all->size())).Raw("damaged", JsonArray(items)).ToString()
        << "\n";
  } else {
    *invocation.out << all->size() << " files, " << bad << " damaged\n";
  }
  return bad == 0 ? kDone : kBadEntries;
}

int Prune(const Invocation& invocation) {
  if (invocation.other_builds) return PruneOtherBuilds(invocation);
  int64_t bytes = invocation.byte_budget;
  if (!invocation.to.empty()) {
    const std::optional<int64_t> given = ParseBytes(invocation.to);
    if (!given) {
      *invocation.err << "clikart-cache: --to takes a number of bytes, or of K, M or G\n";
      return kUsage;
    }
    bytes = *given;
  }
  return Tell(invocation, cache::Folder({.path = invocation.path}).Prune(bytes));
}

int Clear(const Invocation& invocation) {
  const absl::Status forgotten = cache::Folder({.path = invocation.path}).ForgetUsage();
  if (!forgotten.ok() && !absl::IsNotFound(forgotten)) return Fail(invocation, forgotten);
  return Tell(invocation, cache::Folder({.path = invocation.path}).Prune(0));
}

}  // namespace clikart::cli
