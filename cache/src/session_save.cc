// Writing entries: whole and durable under a temporary name, then renamed.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clikart/cache/object_file.h"
#include "session.h"

namespace clikart::cache {
namespace {

constexpr std::string_view kTemporaryPrefix = "tmp-", kEntrySuffix = ".o";
constexpr size_t kDigestDigits = 64;
constexpr mode_t kFileMode = 0644;  // less the umask
constexpr int kTries = 8;

// File systems that have no such call for this kind of file lose nothing by it.
bool SyncMatters(int error) { return error != EINVAL && error != ENOTSUP && error != ENOSYS; }

// A file that is gone unless it got its final name.
class Temporary {
 public:
  Temporary(const SystemCalls& calls, int folder) : calls_(calls), folder_(folder) {}
  Temporary(Temporary&& other) noexcept
      : calls_(other.calls_),
        folder_(other.folder_),
        name_(std::exchange(other.name_, {})),
        file_(std::move(other.file_)) {}
  ~Temporary() {
    if (!name_.empty()) (void)calls_.remove(folder_, name_.c_str(), 0);
  }

  absl::Status Create() {
    int error = 0;
    for (int i = 0; i < kTries; ++i) {
      std::string name = TemporaryName();
      constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
      file_ = Descriptor(calls_, Retry([&] { return calls_.open(folder_, name.c_str(), flags, kFileMode); }));
      if (file_.ok()) {
        name_ = std::move(name);
        return absl::OkStatus();
      }
      error = errno;
      if (error != EEXIST) break;
    }
    return SystemError("cannot create a file in the kernel cache", error);
  }

  absl::Status Write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = Retry([&] { return calls_.write(file_.get(), bytes.data(), bytes.size()); });
      if (written < 0) return SystemError("cannot write to the kernel cache", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (Retry([&] { return calls_.sync(file_.get()); }) != 0 && SyncMatters(errno)) {
      return SystemError("cannot write to the kernel cache", errno);
    }
    return file_.Close() ? absl::OkStatus() : SystemError("cannot write to the kernel cache", errno);
  }

  absl::Status Rename(const std::string& name) {
    if (calls_.rename(folder_, name_.c_str(), folder_, name.c_str()) == 0) {
      name_.clear();
      return absl::OkStatus();
    }
    // A file system that does not replace: another process was first, with the same kernel.
    return errno == EEXIST ? absl::OkStatus() : SystemError("cannot name a file in the kernel cache", errno);
  }

 private:
  const SystemCalls& calls_;
  const int folder_;
  std::string name_;
  Descriptor file_;
};

}  // namespace

bool IsEntryName(const std::string& name) {
  return name.size() == kDigestDigits + kEntrySuffix.size() && name.ends_with(kEntrySuffix) &&
         name.find_first_not_of("0123456789abcdef") == kDigestDigits;
}

bool IsTemporaryName(const std::string& name) { return name.starts_with(kTemporaryPrefix); }

std::string TemporaryName() {
  // Processes of several machines and containers may share the folder and have the same ids.
  static std::atomic<int64_t> count{0};
  const int64_t time = std::chrono::system_clock::now().time_since_epoch().count();
  return absl::StrCat(std::string(kTemporaryPrefix), getpid(), "-", time, "-", count.fetch_add(1));
}

absl::Status Session::Save(std::span<const Entry> entries, int64_t most_bytes, Saved& saved) const {
  absl::Status first_error;
  const auto keep_first = [&](const absl::Status& status) {
    first_error.Update(status);
    return status.ok();
  };
  struct Pending {
    Temporary file;
    std::string name;
    int64_t bytes;
  };
  std::vector<Pending> pending;
  for (const Entry& entry : entries) {
    const absl::StatusOr<std::vector<uint8_t>> bytes = Serialize(entry);
    if (!keep_first(bytes.status()) || DiskBytes(static_cast<int64_t>(bytes->size())) > most_bytes) continue;
    Temporary file(calls_, folder_.get());
    if (!keep_first(file.Create()) || !keep_first(file.Write(*bytes))) continue;
    pending.push_back({std::move(file), entry.key.FileName(), DiskBytes(static_cast<int64_t>(bytes->size()))});
  }
  for (Pending& one : pending) {
    if (!keep_first(one.file.Finish()) || !keep_first(one.file.Rename(one.name))) continue;
    saved.bytes += one.bytes;
    ++saved.files;
  }
  if (saved.files > 0 && Retry([&] { return calls_.sync(folder_.get()); }) != 0 && SyncMatters(errno)) {
    keep_first(SystemError("cannot make the kernel cache durable", errno));
  }
  return first_error;
}

}  // namespace clikart::cache
