// A cache folder as one call of Folder sees it: opened, and found to be nobody else's.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/cache/entry.h"
#include "clikart/cache/folder.h"
#include "descriptor.h"

namespace clikart::cache {

// The result of `call`, made again while signals interrupt it.
template <typename Call>
auto Retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// "what: strerror": NotFound for ENOENT and ESTALE (a folder replaced under us), else Unavailable.
absl::Status SystemError(const std::string& what, int error);

// Whether only this user and root may write; else why not, as the end of a sentence about it.
bool IsPrivate(const struct stat& file, std::string& why);

// What a file of that size takes of the budget: whole blocks, so that many small files count too.
inline int64_t DiskBytes(int64_t size) { return (size + 4095) / 4096 * 4096; }

// Everything the folder holds beside entries: what it is called.
bool IsEntryName(const std::string& name);
bool IsTemporaryName(const std::string& name);
std::string TemporaryName();

class Session {
 public:
  static absl::StatusOr<Session> Open(const FolderOptions& options, bool create);
  // A folder in this one.
  absl::StatusOr<Session> Inner(const FolderOptions& options, const char* name, bool create) const;

  // The verified entry of a file, which stays open in `file`. On DataLoss `found` is what was judged.
  absl::StatusOr<Entry> Read(const std::string& name, struct stat& found, Descriptor& file) const;
  // Moves a bad file out of the way, where nothing else took its name meanwhile. Where that fails it is
  // removed; where that fails too it is found bad again.
  void SetAside(const std::string& name, const struct stat& found) const;
  struct Saved {
    int64_t files = 0, bytes = 0;
  };
  absl::Status Save(std::span<const Entry> entries, int64_t most_bytes, Saved& saved) const;
  absl::Status ForEach(const std::function<void(const std::string& name, const struct stat& file)>& visit) const;
  absl::Status Remove(const std::string& name) const;
  // A file of text that is appended to in one piece, and the beginning of one.
  absl::Status Append(const std::string& name, const std::string& text) const;
  absl::StatusOr<std::string> ReadText(const std::string& name) const;

 private:
  Session(const SystemCalls& calls, Descriptor folder) : calls_(calls), folder_(std::move(folder)) {}
  absl::StatusOr<Descriptor> OpenFile(const std::string& name, struct stat& found) const;

  const SystemCalls& calls_;
  Descriptor folder_;
};

}  // namespace clikart::cache
