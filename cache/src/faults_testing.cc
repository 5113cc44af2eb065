#include "faults_testing.h"

#include <atomic>

namespace clikart::cache {
namespace {

std::atomic<int64_t> g_made{0}, g_at{-1};
int g_error = 0;

bool Fails() {
  if (g_made++ != g_at) return false;
  errno = g_error;
  return true;
}

const SystemCalls& Real() { return RealSystemCalls(); }

constexpr SystemCalls kFaulty = {
    .open = [](int folder, const char* name, int flags,
               mode_t mode) { return Fails() ? -1 : Real().open(folder, name, flags, mode); },
    .make_folder = [](int folder, const char* name,
                      mode_t mode) { return Fails() ? -1 : Real().make_folder(folder, name, mode); },
    .stat = [](int file, struct stat* out) { return Fails() ? -1 : Real().stat(file, out); },
    .stat_name = [](int folder, const char* name,
                    struct stat* out) { return Fails() ? -1 : Real().stat_name(folder, name, out); },
    .read = [](int file, void* out, size_t size) { return Fails() ? -1 : Real().read(file, out, size); },
    // Half of the data first, so that there is always a rest to fail.
    .write = [](int file, const void* data,
                size_t size) { return Fails() ? -1 : Real().write(file, data, size > 1 ? size / 2 : size); },
    .sync = [](int) { return Fails() ? -1 : 0; },
    // A file is closed also where closing it reports an error.
    .close =
        [](int file) {
          const bool fails = Fails();
          const int result = Real().close(file);
          if (fails) errno = g_error;
          return fails ? -1 : result;
        },
    .rename = [](int from_folder, const char* from, int to_folder,
                 const char* to) { return Fails() ? -1 : Real().rename(from_folder, from, to_folder, to); },
    .remove = [](int folder, const char* name, int flags) { return Fails() ? -1 : Real().remove(folder, name, flags); },
    .touch = [](int file) { return Fails() ? -1 : Real().touch(file); },
    .list = [](int folder) -> DIR* { return Fails() ? nullptr : Real().list(folder); },
    .next = [](DIR* list) -> dirent* { return Fails() ? nullptr : Real().next(list); },
    .end_list =
        [](DIR* list) {
          const bool fails = Fails();
          const int result = Real().end_list(list);
          return fails ? -1 : result;
        },
};

}  // namespace

const SystemCalls& QuickCalls() {
  static const SystemCalls calls = [] {
    SystemCalls quick = RealSystemCalls();
    quick.sync = [](int) { return 0; };
    return quick;
  }();
  return calls;
}

Fault::Fault(int64_t at, int error) {
  g_made = 0;
  g_at = at;
  g_error = error;
}

Fault::~Fault() { g_at = -1; }

const SystemCalls& Fault::calls() const { return kFaulty; }

int64_t Fault::made() const { return g_made; }

}  // namespace clikart::cache
