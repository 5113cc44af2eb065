// The system calls that a cache folder makes, as a table: tests let each of them fail.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace clikart::cache {

struct SystemCalls {
  int (*open)(int folder, const char* name, int flags, mode_t mode);  // openat
  int (*make_folder)(int folder, const char* name, mode_t mode);      // mkdirat
  int (*stat)(int file, struct stat* out);                            // fstat
  int (*stat_name)(int folder, const char* name, struct stat* out);   // fstatat, which follows no link
  ssize_t (*read)(int file, void* out, size_t size);
  ssize_t (*write)(int file, const void* data, size_t size);
  int (*sync)(int file);  // fsync
  int (*close)(int file);
  int (*rename)(int from_folder, const char* from, int to_folder, const char* to);  // renameat
  int (*remove)(int folder, const char* name, int flags);                           // unlinkat
  int (*touch)(int file);                                                           // futimens, now
  DIR* (*list)(int folder);                                                         // fdopendir
  dirent* (*next)(DIR* list);                                                       // readdir
  int (*end_list)(DIR* list);                                                       // closedir
};

const SystemCalls& RealSystemCalls();

}  // namespace clikart::cache
