// What tests of the cache share: entries, a folder of their own, and system calls that fail when told.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "clikart/cache/entry.h"
#include "clikart/cache/folder.h"

namespace clikart::cache {

// mov eax, value; ret, and eight bytes of constants.
inline Entry SampleEntry(int value) {
  Entry entry;
  entry.key = {"float dense n=" + std::to_string(value), "avx2: sse42 avx2", "xbyak", "0123abcd"};
  entry.isa = "avx2";
  entry.driver = "panels";
  entry.schedule = "row_block=6 depth_block=256";
  entry.entry_points = {{0, 0}, {3, 5}};
  entry.loops = {{"micro 6x1 packed", 0, 5, 12}};
  entry.jit_nanoseconds = 1234567;
  const auto v = static_cast<uint32_t>(value);
  entry.code = {0xb8,
                static_cast<uint8_t>(v),
                static_cast<uint8_t>(v >> 8),
                static_cast<uint8_t>(v >> 16),
                static_cast<uint8_t>(v >> 24),
                0xc3};
  entry.instruction_bytes = static_cast<int64_t>(entry.code.size());
  entry.code.insert(entry.code.end(), 8, 0x3f);
  return entry;
}

// Where a file costs least.
inline std::filesystem::path MemoryFolder() {
  return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string path = (parent / "clikart-cache-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<uint8_t> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteFile(const std::filesystem::path& path, std::span<const uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) names.push_back(item.path().filename());
  return names;
}

}  // namespace clikart::cache
