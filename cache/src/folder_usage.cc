// The records of processes, in a folder beside the entries.
#include <fcntl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "session.h"

namespace clikart::cache {
namespace {

// A process that asks for kernels all day long writes some kilobytes; more is not read.
constexpr size_t kMostText = 1 << 20;

}  // namespace

absl::Status Session::Append(const std::string& name, const std::string& text) const {
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(calls_, Retry([&] { return calls_.open(folder_.get(), name.c_str(), flags, 0644); }));
  const std::string what = absl::StrCat("cannot write ", name);
  if (!file.ok()) return SystemError(what, errno);
  const ssize_t written = Retry([&] { return calls_.write(file.get(), text.data(), text.size()); });
  if (written != static_cast<ssize_t>(text.size())) return SystemError(what, written < 0 ? errno : ENOSPC);
  return file.Close() ? absl::OkStatus() : SystemError(what, errno);
}

absl::StatusOr<std::string> Session::ReadText(const std::string& name) const {
  struct stat found;
  absl::StatusOr<Descriptor> file = OpenFile(name, found);
  if (!file.ok()) return file.status();
  if (!S_ISREG(found.st_mode)) return absl::DataLossError(absl::StrCat(name, " is no regular file"));
  std::string text(std::min(kMostText, static_cast<size_t>(found.st_size)), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = Retry([&] { return calls_.read(file->get(), text.data() + have, text.size() - have); });
    if (got < 0) return SystemError(absl::StrCat("cannot read ", name), errno);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

absl::Status Folder::Record(const Usage& usage, const std::string& process) const {
  if (usage.empty() || options_.access == Access::kReadOnly) return absl::OkStatus();
  const absl::StatusOr<Session> session = Session::Open(options_, true);
  if (!session.ok()) return session.status();
  const absl::StatusOr<Session> records = session->Inner(options_, kUsageFolder, true);
  return records.ok() ? records->Append(process, usage.ToString()) : records.status();
}

absl::StatusOr<Usage> Folder::ReadUsage(int64_t* processes) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  const absl::StatusOr<Session> records = session->Inner(options_, kUsageFolder, false);
  if (!records.ok()) return records.status();
  Usage usage;
  absl::Status status = records->ForEach([&](const std::string& name, const struct stat&) {
    const absl::StatusOr<std::string> text = records->ReadText(name);
    if (!text.ok()) return;  // another process may have forgotten it
    usage.Add(*text);
    if (processes != nullptr) ++*processes;
  });
  if (!status.ok()) return status;
  return usage;
}

absl::Status Folder::ForgetUsage() const { return ForgetUsageBut(0); }

absl::Status Folder::ForgetUsageBut(size_t latest) const {
  const absl::StatusOr<Session> session = Session::Open(options_, false);
  if (!session.ok()) return session.status();
  const absl::StatusOr<Session> records = session->Inner(options_, kUsageFolder, false);
  if (!records.ok()) return absl::IsNotFound(records.status()) ? absl::OkStatus() : records.status();
  std::vector<std::pair<int64_t, std::string>> files;  // the latest first
  absl::Status status = records->ForEach([&](const std::string& name, const struct stat& file) {
    files.emplace_back(-static_cast<int64_t>(file.st_mtime), name);
  });
  std::sort(files.begin(), files.end());
  for (size_t i = latest; i < files.size(); ++i) status.Update(records->Remove(files[i].second));
  return status;
}

}  // namespace clikart::cache
