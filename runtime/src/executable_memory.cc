#include "executable_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "memory_policies.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U  // Linux 6.3
#endif

namespace clikart {
namespace {

constexpr size_t kBlockAlignment = 64;
// Tens of kernels share a mapping. Larger arenas would only keep more dead code next to a live kernel.
constexpr size_t kArenaBytes = 256 << 10;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PageBytes() {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page;
}

absl::Status Refusal(int error, const char* what) {
  if (error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no executable memory: ", what, ": ", strerror(error),
                     ". Raise what the process may have of it: address space (ulimit -v, RLIMIT_AS), memory of its "
                     "cgroup, or open files (ulimit -n, RLIMIT_NOFILE)"));
  }
  std::string policies = MemoryPoliciesInForce();
  if (policies.empty()) policies = "none of SELinux, seccomp, PR_SET_MDWE and vm.memfd_noexec";
  return absl::PermissionDeniedError(absl::StrCat(
      "the system refuses executable memory (", what, ": ", strerror(error), "). Policies in force: ", policies,
      ". Allow it for this process, or set CLIKART_EMITTER=portable to run without generated code"));
}

// One memfd, mapped for execution as long as the arena lives. Code is appended by writing to the file, which
// needs no writable mapping and faults no page, and its place is never
// used again: a forked child runs the same pages. The arena goes when the last of its blocks does.
class Arena {
 public:
  static absl::StatusOr<std::shared_ptr<Arena>> Create(size_t bytes) {
    int fd = memfd_create("clikart", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("clikart", MFD_CLOEXEC);  // an older kernel
    if (fd < 0) return Refusal(errno, "memfd_create");
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      const int error = errno;
      close(fd);
      return Refusal(error, "ftruncate");
    }
    void* code = mmap(nullptr, bytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    if (code == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return Refusal(error, "mmap of executable pages");
    }
    return std::shared_ptr<Arena>(new Arena(fd, static_cast<uint8_t*>(code), bytes));
  }

  ~Arena() {
    munmap(code_, bytes_);
    close(fd_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  bool Fits(size_t bytes) const { return bytes <= bytes_ - used_; }

  // Under the lock of the allocator.
  absl::StatusOr<const uint8_t*> Append(std::span<const uint8_t> code) {
    for (size_t done = 0; done < code.size();) {
      const ssize_t written = pwrite(fd_, code.data() + done, code.size() - done, static_cast<off_t>(used_ + done));
      if (written < 0 && errno != EINTR) return Refusal(errno, "writing code");
      if (written > 0) done += static_cast<size_t>(written);
    }
    const uint8_t* place = code_ + used_;
    used_ = RoundUp(used_ + code.size(), kBlockAlignment);
    return place;
  }

 private:
  Arena(int fd, uint8_t* code, size_t bytes) : fd_(fd), code_(code), bytes_(bytes) {}
  const int fd_;
  uint8_t* const code_;
  const size_t bytes_;
  size_t used_ = 0;
};

class ArenaBlock : public ExecutableBlock {
 public:
  ArenaBlock(std::shared_ptr<Arena> arena, const uint8_t* data, size_t size)
      : arena_(std::move(arena)), data_(data), size_(size) {}
  const uint8_t* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  std::shared_ptr<Arena> arena_;
  const uint8_t* data_;
  size_t size_;
};

// Private pages, written and then made executable: where memfd is refused but this is not.
class PrivateBlock : public ExecutableBlock {
 public:
  static absl::StatusOr<std::shared_ptr<ExecutableBlock>> Create(std::span<const uint8_t> code) {
    const size_t bytes = RoundUp(code.size(), PageBytes());
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return Refusal(errno, "mmap");
    auto block = std::make_shared<PrivateBlock>(static_cast<uint8_t*>(pages), bytes, code.size());
    std::memcpy(pages, code.data(), code.size());
    if (mprotect(pages, bytes, PROT_READ | PROT_EXEC) != 0) return Refusal(errno, "mprotect to executable");
    return std::shared_ptr<ExecutableBlock>(std::move(block));
  }

  PrivateBlock(uint8_t* pages, size_t mapped, size_t size) : pages_(pages), mapped_(mapped), size_(size) {}
  ~PrivateBlock() override { munmap(pages_, mapped_); }
  const uint8_t* data() const override { return pages_; }
  size_t size() const override { return size_; }

 private:
  uint8_t* pages_;
  size_t mapped_, size_;
};

// The arena that is being filled.
class Allocator {
 public:
  static Allocator& Instance() {
    static Allocator* const allocator = new Allocator;
    return *allocator;
  }

  std::mutex& mutex() { return mutex_; }
  void Leave() { current_.reset(); }

  absl::StatusOr<std::shared_ptr<ExecutableBlock>> Allocate(std::span<const uint8_t> code) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Arena> arena = current_.lock();
    if (arena == nullptr || !arena->Fits(code.size())) {
      absl::StatusOr<std::shared_ptr<Arena>> fresh =
          Arena::Create(std::max(kArenaBytes, RoundUp(code.size(), PageBytes())));
      if (!fresh.ok()) return fresh.status();
      arena = *std::move(fresh);
      current_ = arena;
    }
    const absl::StatusOr<const uint8_t*> place = arena->Append(code);
    if (!place.ok()) return place.status();
    return std::shared_ptr<ExecutableBlock>(std::make_shared<ArenaBlock>(std::move(arena), *place, code.size()));
  }

 private:
  std::mutex mutex_;
  std::weak_ptr<Arena> current_;  // its blocks own it
};

}  // namespace

std::mutex& ExecutableMemoryMutex() { return Allocator::Instance().mutex(); }
void LeaveParentsExecutableMemory() { Allocator::Instance().Leave(); }

absl::StatusOr<std::shared_ptr<ExecutableBlock>> MakeExecutable(std::span<const uint8_t> code) {
  absl::StatusOr<std::shared_ptr<ExecutableBlock>> block = Allocator::Instance().Allocate(code);
  if (block.ok() || block.status().code() != absl::StatusCode::kPermissionDenied) return block;
  absl::StatusOr<std::shared_ptr<ExecutableBlock>> fallback = PrivateBlock::Create(code);
  // Where both fail, the first refusal says more.
  return fallback.ok() ? fallback : block;
}

absl::StatusOr<std::shared_ptr<ExecutableBlock>> MakeExecutableForPerfMap(std::span<const uint8_t> code) {
  absl::StatusOr<std::shared_ptr<ExecutableBlock>> block = PrivateBlock::Create(code);
  return block.ok() ? block : MakeExecutable(code);
}

}  // namespace clikart
