#include "clikart/cache/system_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace clikart::cache {

const SystemCalls& RealSystemCalls() {
  static constexpr SystemCalls calls = {
      .open = [](int folder, const char* name, int flags, mode_t mode) { return ::openat(folder, name, flags, mode); },
      .make_folder = &::mkdirat,
      .stat = [](int file, struct stat* out) { return ::fstat(file, out); },
      .stat_name = [](int folder, const char* name,
                      struct stat* out) { return ::fstatat(folder, name, out, AT_SYMLINK_NOFOLLOW); },
      .read = &::read,
      .write = &::write,
      .sync = &::fsync,
      .close = &::close,
      .rename = &::renameat,
      .remove = &::unlinkat,
      .touch = [](int file) { return ::futimens(file, nullptr); },
      .list = &::fdopendir,
      .next = &::readdir,
      .end_list = &::closedir,
  };
  return calls;
}

}  // namespace clikart::cache
