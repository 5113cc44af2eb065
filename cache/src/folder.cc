#include "clikart/cache/folder.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "session.h"

namespace clikart::cache {
namespace {

// How far behind the time of last use may be, so that hits seldom write.
constexpr int64_t kTouchSeconds = 3600;
// A writer that needs longer than this is not coming back.
constexpr int64_t kDeadWriterSeconds = 600;
// Processes whose records are kept.
constexpr size_t kProcesses = 256;

FolderOptions Tidy(FolderOptions options) {
  // A slash at the end would let a symbolic link be followed.
  while (options.path.size() > 1 && options.path.back() == '/') options.path.pop_back();
  return options;
}

}  // namespace

Folder::Folder(FolderOptions options) : options_(Tidy(std::move(options))), saved_since_prune_(options_.byte_budget) {}

absl::StatusOr<Entry> Folder::Load(const Key& key) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  const std::string name = key.FileName();
  struct stat found = {};
  Descriptor file;
  absl::StatusOr<Entry> entry = session->Read(name, found, file);
  if (entry.ok() && !(entry->key == key)) {
    entry = absl::DataLossError(absl::StrCat("the cached kernel ", name, " is not used: it is of another key"));
  }
  if (options_.access == Access::kReadOnly) return entry;
  if (absl::IsDataLoss(entry.status())) session->SetAside(name, found);
  if (entry.ok() && time(nullptr) - found.st_mtime > kTouchSeconds) (void)options_.calls->touch(file.get());
  return entry;
}

absl::StatusOr<Entry> Folder::Read(const std::string& name) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  struct stat found = {};
  Descriptor file;
  return session->Read(name, found, file);
}

absl::Status Folder::Save(std::span<const Entry> entries, int64_t* saved) {
  if (options_.access == Access::kReadOnly || options_.byte_budget == 0) return absl::OkStatus();
  absl::Status status;
  Session::Saved done;
  for (int attempt = 0; attempt < 2; ++attempt) {  // the folder may be replaced in between
    const absl::StatusOr<Session> session = Session::Open(options_, true);
    done = {};
    status = session.ok() ? session->Save(entries, options_.byte_budget, done) : session.status();
    if (!absl::IsNotFound(status)) break;
  }
  if (saved != nullptr) *saved += done.files;
  // Listing the folder costs as much as many stores: only now and then, and when a process begins.
  if (saved_since_prune_.fetch_add(done.bytes) + done.bytes > options_.byte_budget / 16) {
    saved_since_prune_ = 0;
    (void)PruneFrom(options_.byte_budget, options_.byte_budget / 4 * 3);
  }
  return status;
}

absl::StatusOr<std::vector<FileInfo>> Folder::List() const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  std::vector<FileInfo> files;
  absl::Status status = session->ForEach([&](const std::string& name, const struct stat& file) {
    if (IsEntryName(name)) files.push_back({name, DiskBytes(file.st_size), static_cast<int64_t>(file.st_mtime)});
  });
  if (!status.ok()) return status;
  return files;
}

absl::Status Folder::Remove(const std::string& name) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  return session.ok() ? session->Remove(name) : session.status();
}

absl::StatusOr<int64_t> Folder::Prune(int64_t bytes) const { return PruneFrom(bytes, bytes); }

absl::StatusOr<int64_t> Folder::PruneFrom(int64_t limit, int64_t target) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  std::vector<FileInfo> files;
  int64_t bytes = 0;
  const int64_t now = time(nullptr);
  absl::Status status = session->ForEach([&](const std::string& name, const struct stat& file) {
    if (IsEntryName(name)) {
      files.push_back({name, DiskBytes(file.st_size), static_cast<int64_t>(file.st_mtime)});
      bytes += files.back().bytes;
    } else if (IsTemporaryName(name) && now - file.st_mtime > kDeadWriterSeconds) {
      (void)session->Remove(name);
    }
  });
  if (!status.ok()) return status;
  (void)ForgetUsageBut(kProcesses);
  if (bytes <= limit) return 0;
  std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) {
    return std::pair(a.last_use, a.name) < std::pair(b.last_use, b.name);
  });
  int64_t removed = 0;
  for (const FileInfo& file : files) {
    if (bytes <= target) break;
    const absl::Status gone = session->Remove(file.name);
    if (!gone.ok() && !absl::IsNotFound(gone)) continue;
    bytes -= file.bytes;
    ++removed;
  }
  return removed;
}

}  // namespace clikart::cache
