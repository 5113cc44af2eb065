// What may happen to a cache folder and must cost time only: failing system calls, killed writers, races, and
// damage of every kind. Whatever is loaded is what was saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "cache_testing.h"
#include "clikart/cache/folder.h"
#include "clikart/cache/object_file.h"
#include "faults_testing.h"

namespace clikart::cache {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

int64_t OpenFiles() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{}); }

std::vector<std::string> TemporariesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : NamesIn(folder)) {
    if (name.starts_with("tmp-")) names.push_back(name);
  }
  return names;
}

// A step on a folder that holds entry 1 (old), entry 2 (damaged), a dead writer's file, and a budget that
// a third entry exceeds: it takes every system call there is.
class FaultTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int64_t kBudget = 2 * 4096;

  void Prepare() {
    fs::remove_all(path_);
    Folder folder({.path = path_, .calls = &QuickCalls()});
    const std::vector<Entry> both = {one_, two_};
    ASSERT_TRUE(folder.Save(both).ok());
    fs::resize_file(files() / two_.key.FileName(), 50);
    WriteFile(files() / "tmp-1", {});
    const timeval long_ago{time(nullptr) - 7200, 0}, times[2] = {long_ago, long_ago};
    for (const std::string& name : {one_.key.FileName(), std::string("tmp-1")}) {
      ASSERT_EQ(utimes((files() / name).c_str(), times), 0);
    }
  }

  void Run(const SystemCalls& calls) {
    Folder folder({.path = path_, .byte_budget = kBudget, .calls = &calls});
    const absl::StatusOr<Entry> one = folder.Load(one_.key), two = folder.Load(two_.key);
    if (one.ok()) {
      EXPECT_EQ(*one, one_);
    }
    EXPECT_FALSE(two.ok());
    const std::vector<Entry> more = {two_, three_};
    (void)folder.Save(more);
    (void)folder.List();
    (void)folder.Record({.hits = {{"k", 1}}, .rejections = {}}, "p");
    const absl::StatusOr<Usage> usage = folder.ReadUsage();
    if (usage.ok() && !usage->hits.empty()) {
      EXPECT_EQ(usage->hits.at("k"), 1);
    }
    (void)folder.Prune(4096);
  }

  // A healthy process on what was left: right entries or none, and everything can be saved.
  void Check() {
    Folder folder({.path = path_, .calls = &QuickCalls()});
    for (const Entry* entry : {&one_, &two_, &three_}) {
      const absl::StatusOr<Entry> loaded = folder.Load(entry->key);
      if (loaded.ok()) {
        EXPECT_EQ(*loaded, *entry);
      } else {
        EXPECT_TRUE(absl::IsNotFound(loaded.status()) || absl::IsDataLoss(loaded.status())) << loaded.status();
      }
      EXPECT_TRUE(folder.Save({entry, 1}).ok());
      EXPECT_EQ(*folder.Load(entry->key), *entry);
    }
  }

  fs::path files() const { return fs::path(path_) / kFormatFolder; }

  TemporaryFolder place_{MemoryFolder()};
  const std::string path_ = place_.path() / "cache";
  const Entry one_ = SampleEntry(1), two_ = SampleEntry(2), three_ = SampleEntry(3);
};

TEST_P(FaultTest, EverySystemCallFailsOnce) {
  Prepare();
  int64_t calls = 0;
  {
    const Fault none(-1, 0);
    Run(none.calls());
    calls = none.made();
  }
  EXPECT_GT(calls, 80);
  for (int64_t at = 0; at < calls; ++at) {
    SCOPED_TRACE(at);
    Prepare();
    const int64_t open = OpenFiles();
    {
      const Fault fault(at, GetParam());
      Run(fault.calls());
    }
    ASSERT_EQ(OpenFiles(), open);
    // Only the call that removes one may leave one.
    ASSERT_LE(TemporariesIn(files()).size(), 2u);
    Check();
    if (HasFailure()) break;
  }
}

// EEXIST and EXDEV from a rename, ESTALE from anything: what network file systems answer.
INSTANTIATE_TEST_SUITE_P(Errors, FaultTest,
                         ::testing::Values(EIO, ENOSPC, EACCES, EROFS, ESTALE, EEXIST, EXDEV, EMFILE, ENOENT, EINTR,
                                           ENOSYS),
                         [](const auto& error) { return std::string(strerrorname_np(error.param)); });

TEST(HostileFolderTest, KilledWriters) {
  const TemporaryFolder place;
  const std::string path = place.path() / "cache";
  const fs::path files = fs::path(path) / kFormatFolder;
  std::mt19937 random(7);
  const Entry first = SampleEntry(0);
  ASSERT_TRUE(Folder({.path = path}).Save({&first, 1}).ok());
  for (int round = 0; round < 200; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      Folder folder({.path = path});
      for (int i = 0;; i = (i + 1) % 16) {
        Entry entry = SampleEntry(i);
        entry.code.resize(40000);
        (void)folder.Save({&entry, 1});
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Folder folder({.path = path});
    const std::vector<FileInfo> found = *folder.List();
    for (const FileInfo& file : found) {
      const absl::StatusOr<Entry> entry = folder.Read(file.name);
      ASSERT_TRUE(entry.ok()) << round << ": " << entry.status();
    }
  }
  // A dead writer leaves its file at most, and not for ever.
  const std::vector<std::string> left = TemporariesIn(files);
  EXPECT_LE(left.size(), 200u);
  const timeval long_ago{time(nullptr) - 3600, 0}, times[2] = {long_ago, long_ago};
  for (const std::string& name : left) ASSERT_EQ(utimes((files / name).c_str(), times), 0);
  ASSERT_TRUE(Folder({.path = path}).Prune(1 << 30).ok());
  EXPECT_THAT(TemporariesIn(files), IsEmpty());
}

// Eight processes save and load the same 200 entries, while the budget makes them throw half away.
TEST(HostileFolderTest, ProcessesShareAFolder) {
  const TemporaryFolder place(MemoryFolder());
  const std::string path = place.path() / "cache";
  constexpr int kProcesses = 8, kEntries = 200;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      Folder folder({.path = path, .byte_budget = 100 * 4096, .calls = &QuickCalls()});
      int wrong = 0, loaded = 0;
      std::vector<int> order(kEntries);
      for (int i = 0; i < kEntries; ++i) order[static_cast<size_t>(i)] = i;
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(process)));
      for (int pass = 0; pass < 2; ++pass) {
        for (const int i : order) {
          const Entry entry = SampleEntry(i);
          const absl::StatusOr<Entry> found = folder.Load(entry.key);
          if (found.ok()) {
            ++loaded;
            wrong += !(*found == entry);
          } else {
            wrong += !absl::IsNotFound(found.status());
            wrong += !folder.Save({&entry, 1}).ok();
          }
        }
      }
      _exit(wrong != 0 ? 1 : loaded == 0 ? 2 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  }
  Folder folder({.path = path});
  const std::vector<FileInfo> files = *folder.List();
  EXPECT_LE(files.size(), 120u);
  for (const FileInfo& file : files) EXPECT_TRUE(folder.Read(file.name).ok());
  EXPECT_THAT(TemporariesIn(fs::path(path) / kFormatFolder), IsEmpty());
  EXPECT_FALSE(fs::exists(fs::path(path) / kFormatFolder / "bad"));
}

TEST(HostileFolderTest, DamageIsNeverLoaded) {
  const TemporaryFolder place(MemoryFolder());
  Folder folder({.path = place.path() / "cache"});
  Entry entry = SampleEntry(5);
  entry.code.resize(20000, 0x90);
  entry.instruction_bytes = 15000;
  ASSERT_TRUE(folder.Save({&entry, 1}).ok());
  const fs::path file = place.path() / "cache" / kFormatFolder / entry.key.FileName();
  const std::vector<uint8_t> good = ReadFile(file);
  const size_t head = 700;  // ELF header, note, and the first instructions
  for (size_t at = 0; at < good.size(); at += at < head ? 1 : 97) {
    std::vector<uint8_t> bad = good;
    bad[at] ^= static_cast<uint8_t>(1 << at % 8);
    WriteFile(file, bad);
    ASSERT_EQ(folder.Load(entry.key).status().code(), absl::StatusCode::kDataLoss) << at;
  }
  WriteFile(file, good);
  EXPECT_EQ(*folder.Load(entry.key), entry);
}

}  // namespace
}  // namespace clikart::cache
