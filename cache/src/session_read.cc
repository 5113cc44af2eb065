// Reading an entry: everything is copied and verified before anybody sees it.
#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clikart/cache/object_file.h"
#include "session.h"

namespace clikart::cache {
namespace {

constexpr char kBadFolder[] = "bad";
// Enough to see what happened. More is not kept, nor what is far larger than a kernel.
constexpr size_t kMostBadFiles = 16;
constexpr int64_t kMostBadBytes = 1 << 20;

absl::Status Bad(const std::string& name, const std::string& why) {
  return absl::DataLossError(absl::StrCat("the cached kernel ", name, " is not used: ", why));
}

}  // namespace

absl::StatusOr<Descriptor> Session::OpenFile(const std::string& name, struct stat& found) const {
  // A fifo or a device must not make us wait.
  constexpr int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Descriptor file(calls_, Retry([&] { return calls_.open(folder_.get(), name.c_str(), flags, 0); }));
  if (file.ok()) {
    if (calls_.stat(file.get(), &found) != 0) return SystemError(absl::StrCat("cannot examine ", name), errno);
    return file;
  }
  const int error = errno;
  if ((error == ELOOP || error == ENXIO) && calls_.stat_name(folder_.get(), name.c_str(), &found) == 0) {
    return Bad(name, S_ISLNK(found.st_mode) ? "it is a symbolic link" : "it is no regular file");
  }
  return SystemError(absl::StrCat("cannot open ", name), error);
}

absl::StatusOr<Entry> Session::Read(const std::string& name, struct stat& found, Descriptor& file) const {
  absl::StatusOr<Descriptor> opened = OpenFile(name, found);
  if (!opened.ok()) return opened.status();
  file = *std::move(opened);
  if (!S_ISREG(found.st_mode)) return Bad(name, "it is no regular file");
  if (std::string why; !IsPrivate(found, why)) return Bad(name, why);
  if (found.st_size > kMaxFileBytes) return Bad(name, "it is too long");
  const auto size = static_cast<size_t>(found.st_size);
  const auto bytes = std::make_unique_for_overwrite<uint8_t[]>(size);
  for (size_t have = 0; have < size;) {
    const ssize_t got = Retry([&] { return calls_.read(file.get(), bytes.get() + have, size - have); });
    if (got < 0) return SystemError(absl::StrCat("cannot read ", name), errno);
    if (got == 0) return Bad(name, "it became shorter");
    have += static_cast<size_t>(got);
  }
  absl::StatusOr<Entry> entry = Parse({bytes.get(), size});
  if (!entry.ok()) return Bad(name, std::string(entry.status().message()));
  if (entry->key.FileName() != name) return Bad(name, "it holds another kernel than its name says");
  return entry;
}

void Session::SetAside(const std::string& name, const struct stat& found) const {
  // Another process may have replaced it by a good one.
  struct stat now;
  if (calls_.stat_name(folder_.get(), name.c_str(), &now) != 0) return;
  if (now.st_ino != found.st_ino || now.st_dev != found.st_dev) return;
  (void)calls_.make_folder(folder_.get(), kBadFolder, 0700);
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Session bad(calls_, Descriptor(calls_, calls_.open(folder_.get(), kBadFolder, flags, 0)));
  if (bad.folder_.ok() && now.st_size <= kMostBadBytes) {
    std::vector<std::pair<int64_t, std::string>> kept;  // oldest first
    const absl::Status listed = bad.ForEach([&](const std::string& other, const struct stat& file) {
      kept.emplace_back(static_cast<int64_t>(file.st_mtime), other);
    });
    std::sort(kept.begin(), kept.end());
    size_t left = kept.size();
    for (const auto& [time, other] : kept) {
      if (left < kMostBadFiles) break;
      if (bad.Remove(other).ok()) --left;
    }
    const std::string place = absl::StrCat(name, ".", TemporaryName());
    if (listed.ok() && left < kMostBadFiles &&
        calls_.rename(folder_.get(), name.c_str(), bad.folder_.get(), place.c_str()) == 0) {
      return;
    }
  }
  if (calls_.remove(folder_.get(), name.c_str(), 0) != 0) {
    (void)calls_.remove(folder_.get(), name.c_str(), AT_REMOVEDIR);
  }
}

}  // namespace clikart::cache
