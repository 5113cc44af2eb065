// The format is described in tools/perf/Documentation/jitdump-specification.txt of the Linux sources.
#include "jitdump.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "log.h"

namespace clikart {
namespace {

struct FileHeader {
  uint32_t magic = 0x4A695444;
  uint32_t version = 1;
  uint32_t bytes = sizeof(FileHeader);
  uint32_t machine = EM_X86_64;
  uint32_t padding = 0;
  uint32_t pid = 0;
  uint64_t timestamp = 0;
  uint64_t flags = 0;
};
static_assert(sizeof(FileHeader) == 40);

// A JIT_CODE_LOAD; the name with its zero and the instructions follow.
struct CodeLoad {
  uint32_t id = 0;
  uint32_t bytes = 0;  // of the whole record
  uint64_t timestamp = 0;
  uint32_t pid = 0, tid = 0;
  uint64_t virtual_address = 0, code_address = 0;
  uint64_t code_bytes = 0;
  uint64_t index = 0;
};
static_assert(sizeof(CodeLoad) == 56);

// The clock of `perf record -k mono`.
uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// All of it: a record that is cut short would hide those after it.
bool WriteAll(int file, std::span<const iovec> parts) {
  size_t whole = 0;
  for (const iovec& part : parts) whole += part.iov_len;
  const off_t end = lseek(file, 0, SEEK_END);
  const ssize_t written = writev(file, parts.data(), static_cast<int>(parts.size()));
  if (written == static_cast<ssize_t>(whole)) return true;
  if (end >= 0) [[maybe_unused]]
    const int cut = ftruncate(file, end);
  return false;
}

}  // namespace

Jitdump& Jitdump::Instance() {
  static Jitdump* const dump = new Jitdump;
  return *dump;
}

bool Jitdump::Open(const std::string& folder) {
  if (file_ >= 0) close(file_);  // the parent's
  file_ = -1;
  records_ = 0;
  owner_ = getpid();
  // A folder that nobody else can have prepared: the name of the file is perf's, and known beforehand.
  std::string path = absl::StrCat(folder, "/clikart-jitdump-XXXXXX");
  const char* failed = "mkdtemp";
  int file = -1;
  if (mkdtemp(path.data()) != nullptr) {
    absl::StrAppend(&path, "/jit-", owner_, ".dump");
    failed = "open";
    file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  }
  if (file >= 0) {
    const FileHeader header{.pid = static_cast<uint32_t>(owner_), .timestamp = Now()};
    // The executable mapping is what a recording shows of this file, and where perf reads its name. It stays.
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const iovec part{const_cast<FileHeader*>(&header), sizeof(header)};
    failed = "write";
    if (WriteAll(file, {&part, 1})) {
      failed = "mmap";
      if (mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED) {
        file_ = file;
        return true;
      }
    }
  }
  Log(kLogWarning, absl::StrCat("warning: no jitdump at ", path, " (", failed, ": ", strerror(errno),
                                "); CLIKART_PERF_DIR names another folder, not of a file system mounted noexec"));
  if (file >= 0) close(file);
  return false;
}

void Jitdump::Append(const std::string& folder, const std::string& name, std::span<const uint8_t> instructions) {
  const std::lock_guard lock(mutex_);
  if (owner_ != getpid() && !Open(folder)) return;
  if (file_ < 0) return;
  CodeLoad load;
  load.bytes = static_cast<uint32_t>(sizeof(load) + name.size() + 1 + instructions.size());
  load.timestamp = Now();
  load.pid = static_cast<uint32_t>(owner_);
  load.tid = static_cast<uint32_t>(gettid());
  load.virtual_address = load.code_address = reinterpret_cast<uintptr_t>(instructions.data());
  load.code_bytes = instructions.size();
  load.index = records_;
  const iovec parts[] = {{&load, sizeof(load)},
                         {const_cast<char*>(name.c_str()), name.size() + 1},
                         {const_cast<uint8_t*>(instructions.data()), instructions.size()}};
  if (WriteAll(file_, parts)) ++records_;
}

}  // namespace clikart
