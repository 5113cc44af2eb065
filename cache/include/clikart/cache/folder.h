// A folder of kernels that any number of processes share without a lock: a file appears whole under its
// final name or not at all, and is never changed. Nothing here throws, and no failure of the system is
// more than a status: a kernel that cannot be kept is generated again.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/cache/entry.h"
#include "clikart/cache/system_calls.h"
#include "clikart/cache/usage.h"

namespace clikart::cache {

// Entries lie in this folder of the cache folder; another format would have another.
inline constexpr char kFormatFolder[] = "v1";
// Records of processes, in that one.
inline constexpr char kUsageFolder[] = "use";

enum class Access : uint8_t { kReadOnly, kReadWrite };

struct FolderOptions {
  std::string path;
  Access access = Access::kReadWrite;
  int64_t byte_budget = 256 << 20;
  mode_t folder_mode = 0700;  // of the folders that are made, less the umask
  const SystemCalls* calls = &RealSystemCalls();
};

struct FileInfo {
  std::string name;
  int64_t bytes = 0;
  int64_t last_use = 0;  // seconds since the epoch, at most an hour behind
};

// Nothing is kept open between calls: the folder may be removed, replaced or mounted anew at any time, and
// a process may fork or close its files.
class Folder {
 public:
  explicit Folder(FolderOptions options);
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const FolderOptions& options() const { return options_; }

  // The entry, verified, from a file that only this user and root could have written.
  //   NotFound          there is none
  //   DataLoss          its file is bad: damaged, of another kernel, or open to others; it was moved aside
  //   PermissionDenied  the folder is open to others; the message says how to mend it
  //   Unavailable       the system refuses
  absl::StatusOr<Entry> Load(const Key& key) const;

  // Writes all of them, durable before they get their names, and keeps the folder within its budget. The
  // folder is made where it is missing. Of several errors the first is returned; `saved` grows by what was
  // written all the same.
  absl::Status Save(std::span<const Entry> entries, int64_t* saved = nullptr);

  // Appends to what `process` (a file name) wrote down so far.
  absl::Status Record(const Usage& usage, const std::string& process) const;
  // The sum over the processes that are remembered, and how many they are.
  absl::StatusOr<Usage> ReadUsage(int64_t* processes = nullptr) const;
  absl::Status ForgetUsage() const;

  // Every entry, in no order.
  absl::StatusOr<std::vector<FileInfo>> List() const;
  // One file of List(), whoever's key it has; errors as Load.
  absl::StatusOr<Entry> Read(const std::string& name) const;
  absl::Status Remove(const std::string& name) const;
  // Removes what was not used for longest until entries take `bytes` at most, and what dead writers left, and
  // the records of all but the latest processes.
  // Returns how many entries went.
  absl::StatusOr<int64_t> Prune(int64_t bytes) const;

 private:
  // Does nothing while entries take no more than `limit`, else goes down to `target`.
  absl::StatusOr<int64_t> PruneFrom(int64_t limit, int64_t target) const;

  absl::Status ForgetUsageBut(size_t latest) const;

  const FolderOptions options_;
  std::atomic<int64_t> saved_since_prune_;
};

}  // namespace clikart::cache
