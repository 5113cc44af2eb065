#include "session.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace clikart::cache {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

absl::Status Refusal(const std::string& path, const std::string& why) {
  return absl::PermissionDeniedError(absl::StrCat(
      "the kernel cache \"", path, "\" is not used, because code from it would run in this process and ", why));
}

// `path` within `parent`; `shown` is its whole path.
absl::StatusOr<Descriptor> OpenFolder(const SystemCalls& calls, int parent, const std::string& path,
                                      const std::string& shown) {
  Descriptor folder(calls, Retry([&] { return calls.open(parent, path.c_str(), kFolderFlags, 0); }));
  if (!folder.ok()) {
    const int error = errno;
    struct stat found;
    const bool odd = error == ENOTDIR || error == ELOOP;
    if (odd && calls.stat_name(parent, path.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) {
      return Refusal(shown, "it is a symbolic link. Set CLIKART_CACHE_DIR to the folder that it points to");
    }
    return SystemError(absl::StrCat("cannot open the kernel cache \"", shown, "\""), error);
  }
  struct stat found;
  if (calls.stat(folder.get(), &found) != 0) return SystemError(absl::StrCat("cannot examine \"", shown, "\""), errno);
  std::string why;
  if (!IsPrivate(found, why)) {
    const std::string mend = found.st_uid == geteuid()
                                 ? absl::StrCat("chmod go-w '", shown, "', or set CLIKART_CACHE_DIR to another folder")
                                 : "set CLIKART_CACHE_DIR to a folder of your own";
    return Refusal(shown, absl::StrCat(why, ". To mend it: ", mend));
  }
  return folder;
}

// Each missing folder of the path. What cannot be made is found missing by who opens it.
void MakeFolders(const SystemCalls& calls, const std::string& path, mode_t mode) {
  for (size_t end = 1; end != std::string::npos;) {
    end = path.find('/', end + 1);
    (void)calls.make_folder(AT_FDCWD, path.substr(0, end).c_str(), mode);
  }
}

}  // namespace

absl::Status SystemError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", strerror(error));
  if (error == ENOENT || error == ESTALE) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

bool IsPrivate(const struct stat& file, std::string& why) {
  const uid_t user = geteuid();
  if (file.st_uid != user && file.st_uid != 0) {
    why = absl::StrCat("it belongs to user ", file.st_uid, ", not to user ", user);
    return false;
  }
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = absl::StrFormat("its mode %04o lets others write to it", file.st_mode & 07777);
    return false;
  }
  return true;
}

absl::StatusOr<Session> Session::Open(const FolderOptions& options, bool create) {
  const SystemCalls& calls = *options.calls;
  absl::StatusOr<Descriptor> outer = OpenFolder(calls, AT_FDCWD, options.path, options.path);
  if (create && absl::IsNotFound(outer.status())) {
    MakeFolders(calls, options.path, options.folder_mode);
    outer = OpenFolder(calls, AT_FDCWD, options.path, options.path);
  }
  if (!outer.ok()) return outer.status();
  return Session(calls, *std::move(outer)).Inner(options, kFormatFolder, create);
}

absl::StatusOr<Session> Session::Inner(const FolderOptions& options, const char* name, bool create) const {
  const std::string shown = absl::StrCat(options.path, "/", name);
  absl::StatusOr<Descriptor> inner = OpenFolder(calls_, folder_.get(), name, shown);
  if (create && absl::IsNotFound(inner.status())) {
    (void)calls_.make_folder(folder_.get(), name, options.folder_mode);
    inner = OpenFolder(calls_, folder_.get(), name, shown);
  }
  if (!inner.ok()) return inner.status();
  return Session(calls_, *std::move(inner));
}

absl::Status Session::ForEach(
    const std::function<void(const std::string& name, const struct stat& file)>& visit) const {
  // The list takes its descriptor over, so it gets one of its own.
  Descriptor again(calls_, Retry([&] { return calls_.open(folder_.get(), ".", kFolderFlags, 0); }));
  if (!again.ok()) return SystemError("cannot list the kernel cache", errno);
  DIR* list = calls_.list(again.get());
  if (list == nullptr) return SystemError("cannot list the kernel cache", errno);
  again.Release();
  errno = 0;
  while (const dirent* item = calls_.next(list)) {
    const std::string name = item->d_name;
    struct stat file;
    // What went meanwhile is no longer there to visit.
    if (name != "." && name != ".." && calls_.stat_name(folder_.get(), name.c_str(), &file) == 0) visit(name, file);
    errno = 0;
  }
  const int error = errno;
  (void)calls_.end_list(list);
  return error == 0 ? absl::OkStatus() : SystemError("cannot list the kernel cache", error);
}

absl::Status Session::Remove(const std::string& name) const {
  if (calls_.remove(folder_.get(), name.c_str(), 0) == 0) return absl::OkStatus();
  return SystemError(absl::StrCat("cannot remove ", name), errno);
}

}  // namespace clikart::cache
