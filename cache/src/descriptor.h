// A file descriptor that is closed when it goes, through the table of system calls.
#pragma once

#include <cerrno>
#include <utility>

#include "clikart/cache/system_calls.h"

namespace clikart::cache {

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const SystemCalls& calls, int fd) : calls_(&calls), fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : calls_(other.calls_), fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    const int error = errno;
    (void)Close();
    errno = error;
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // Gives the descriptor away.
  int Release() { return std::exchange(fd_, -1); }
  // What network file systems could not write is told here.
  bool Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || calls_->close(fd) == 0;
  }

 private:
  const SystemCalls* calls_ = nullptr;
  int fd_ = -1;
};

}  // namespace clikart::cache
