// perf's jitdump: generated code, named and whole, in a file that `perf inject --jit` joins to a recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

namespace clikart {

class Jitdump {
 public:
  static Jitdump& Instance();

  // A record of `instructions`, which stay where they are. The first one of a process makes
  // <folder>/clikart-jitdump-XXXXXX/jit-<pid>.dump, which only this user can read; a forked child makes its own.
  // Where that fails there is one warning, and no file.
  void Append(const std::string& folder, const std::string& name, std::span<const uint8_t> instructions);

  // For pthread_atfork.
  std::mutex& mutex() { return mutex_; }

 private:
  bool Open(const std::string& folder);

  std::mutex mutex_;
  pid_t owner_ = 0;  // the process that opened the file, or failed to
  int file_ = -1;
  uint64_t records_ = 0;
};

}  // namespace clikart
