// Linked into every test program: a kernel cache of its own, empty at its start and gone at its end, instead of
// the cache of whoever runs it.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace {

class PrivateCache {
 public:
  PrivateCache() {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "clikart-test-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      setenv("CLIKART_CACHE", "memory", 1);
      return;
    }
    path_ = path;
    setenv("CLIKART_CACHE_DIR", path.c_str(), 1);
    setenv("CLIKART_CACHE_SYSTEM_DIR", (path_ / "system").c_str(), 1);
  }
  ~PrivateCache() {
    std::error_code ignored;
    if (getpid() == owner_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

 private:
  const pid_t owner_ = getpid();
  std::filesystem::path path_;
};

const PrivateCache private_cache;

}  // namespace
