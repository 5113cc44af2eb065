#include "clikart/cache/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>

#include "cache_testing.h"
#include "clikart/cache/object_file.h"

namespace clikart::cache {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class FolderTest : public ::testing::Test {
 protected:
  std::string path() const { return place_.path() / "cache"; }
  fs::path files() const { return fs::path(path()) / kFormatFolder; }
  fs::path FileOf(const Entry& entry) const { return files() / entry.key.FileName(); }
  static void SetAge(const fs::path& file, int64_t seconds) {
    const timeval then{time(nullptr) - seconds, 0}, times[2] = {then, then};
    ASSERT_EQ(utimes(file.c_str(), times), 0);
  }
  static int64_t AgeOf(const fs::path& file) {
    struct stat found;
    EXPECT_EQ(stat(file.c_str(), &found), 0);
    return time(nullptr) - found.st_mtime;
  }
  void Save(const Entry& entry) { ASSERT_TRUE(folder_.Save({&entry, 1}).ok()); }
  std::string Problem(const Entry& entry, absl::StatusCode code) const {
    const absl::Status status = folder_.Load(entry.key).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  // A bad file is reported, moved aside and then missing.
  void ExpectSetAside(const Entry& entry, const std::string& why) {
    EXPECT_THAT(Problem(entry, absl::StatusCode::kDataLoss), AllOf(HasSubstr(entry.key.FileName()), HasSubstr(why)));
    Problem(entry, absl::StatusCode::kNotFound);
    EXPECT_FALSE(fs::exists(fs::symlink_status(FileOf(entry))));
    Save(entry);
    EXPECT_EQ(*folder_.Load(entry.key), entry);
  }

  TemporaryFolder place_;
  Folder folder_{{.path = path()}};
  const Entry one_ = SampleEntry(1), two_ = SampleEntry(2);
};

TEST_F(FolderTest, KeepsEntries) {
  Problem(one_, absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(path()));  // looking makes nothing
  const std::vector<Entry> both = {one_, two_};
  ASSERT_TRUE(folder_.Save(both).ok());
  EXPECT_EQ(*folder_.Load(one_.key), one_);
  EXPECT_EQ(*folder_.Load(two_.key), two_);
  EXPECT_THAT(NamesIn(files()), UnorderedElementsAre(one_.key.FileName(), two_.key.FileName()));
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(FileOf(one_)).permissions() & (fs::perms::group_write | fs::perms::others_write),
            fs::perms::none);
}

TEST_F(FolderTest, MakesTheFoldersAbove) {
  Folder deep({.path = place_.path() / "a/b/c/"});
  EXPECT_TRUE(deep.Save({&one_, 1}).ok());
  EXPECT_EQ(*deep.Load(one_.key), one_);
}

TEST_F(FolderTest, ReplacesAndSurvivesRemoval) {
  Save(one_);
  Entry newer = one_;
  newer.jit_nanoseconds = 5;
  Save(newer);
  EXPECT_EQ(*folder_.Load(one_.key), newer);
  fs::remove_all(path());
  Problem(one_, absl::StatusCode::kNotFound);
  Save(one_);
  EXPECT_EQ(*folder_.Load(one_.key), one_);
}

TEST_F(FolderTest, DamagedFiles) {
  Save(one_);
  const std::vector<uint8_t> good = ReadFile(FileOf(one_));
  for (const size_t size : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
    WriteFile(FileOf(one_), {good.data(), size});
    ExpectSetAside(one_, size < 100 ? "too short" : "SHA-256");
  }
  std::vector<uint8_t> bad = good;
  bad.insert(bad.end(), 100, 0xaa);
  WriteFile(FileOf(one_), bad);
  ExpectSetAside(one_, "SHA-256");
  ASSERT_EQ(truncate(FileOf(one_).c_str(), kMaxFileBytes + 1), 0);
  ExpectSetAside(one_, "too long");
}

TEST_F(FolderTest, SwappedFiles) {
  Save(one_);
  Save(two_);
  fs::rename(FileOf(one_), files() / "x");
  fs::rename(FileOf(two_), FileOf(one_));
  fs::rename(files() / "x", FileOf(two_));
  ExpectSetAside(one_, "another kernel");
  ExpectSetAside(two_, "another kernel");
}

TEST_F(FolderTest, OddThingsInItsPlace) {
  Save(one_);
  const fs::path file = FileOf(one_);
  const auto replace = [&](auto make) {
    fs::remove_all(file);
    make();
  };
  replace([&] { fs::create_directory(file); });
  ExpectSetAside(one_, "no regular file");
  replace([&] { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); });
  ExpectSetAside(one_, "no regular file");
  replace([&] { fs::create_symlink(file.filename(), file); });
  ExpectSetAside(one_, "symbolic link");
  WriteFile(place_.path() / "elsewhere", *Serialize(one_));
  replace([&] { fs::create_symlink(place_.path() / "elsewhere", file); });
  ExpectSetAside(one_, "symbolic link");
}

TEST_F(FolderTest, FilesThatOthersCouldWrite) {
  Save(one_);
  for (const mode_t mode : {0666, 0664, 0602}) {
    ASSERT_EQ(chmod(FileOf(one_).c_str(), mode), 0);
    ExpectSetAside(one_, "lets others write");
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(chown(FileOf(one_).c_str(), 12345, 12345), 0);
  ExpectSetAside(one_, "belongs to user 12345");
}

TEST_F(FolderTest, FoldersThatOthersCouldWrite) {
  Save(one_);
  for (const std::string& folder : {path(), files().string()}) {
    for (const mode_t mode : {0777, 0775, 01777}) {
      ASSERT_EQ(chmod(folder.c_str(), mode), 0);
      EXPECT_THAT(Problem(one_, absl::StatusCode::kPermissionDenied),
                  AllOf(HasSubstr(folder), HasSubstr("chmod go-w '" + folder + "'"), HasSubstr("CLIKART_CACHE_DIR")));
      EXPECT_EQ(folder_.Save({&one_, 1}).code(), absl::StatusCode::kPermissionDenied);
    }
    ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
    EXPECT_TRUE(folder_.Load(one_.key).ok());
    if (geteuid() != 0) continue;
    ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
    EXPECT_THAT(Problem(one_, absl::StatusCode::kPermissionDenied), HasSubstr("belongs to user 12345, not to user 0"));
    ASSERT_EQ(chown(folder.c_str(), 0, 0), 0);
  }
}

TEST_F(FolderTest, LinkedFolders) {
  Save(one_);
  fs::rename(path(), place_.path() / "real");
  fs::create_directory_symlink(place_.path() / "real", path());
  EXPECT_THAT(Problem(one_, absl::StatusCode::kPermissionDenied), HasSubstr("symbolic link"));
  Folder with_slash({.path = path() + "/"});
  EXPECT_EQ(with_slash.Load(one_.key).status().code(), absl::StatusCode::kPermissionDenied);
  Folder real({.path = place_.path() / "real"});
  EXPECT_TRUE(real.Load(one_.key).ok());
  fs::remove(path());
  fs::create_symlink("cache", path());  // a loop
  Problem(one_, absl::StatusCode::kPermissionDenied);
  fs::remove(path());
  WriteFile(path(), {});
  Problem(one_, absl::StatusCode::kUnavailable);
  EXPECT_EQ(folder_.Save({&one_, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(FolderTest, ReadOnlyAccessChangesNothing) {
  Save(one_);
  WriteFile(FileOf(one_), {});
  SetAge(FileOf(one_), 7200);
  Folder reader({.path = path(), .access = Access::kReadOnly});
  EXPECT_EQ(reader.Load(one_.key).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(reader.Save({&two_, 1}).ok());
  EXPECT_THAT(NamesIn(files()), UnorderedElementsAre(one_.key.FileName()));
  EXPECT_GT(AgeOf(FileOf(one_)), 7000);
}

TEST_F(FolderTest, FewBadFilesAreKept) {
  for (int i = 0; i < 40; ++i) {
    const Entry entry = SampleEntry(i);
    Save(entry);
    WriteFile(FileOf(entry), {});
    Problem(entry, absl::StatusCode::kDataLoss);
  }
  EXPECT_THAT(NamesIn(files() / "bad"), SizeIs(16));
  EXPECT_THAT(NamesIn(files()), UnorderedElementsAre("bad"));
}

TEST_F(FolderTest, UseIsRecordedSeldom) {
  Save(one_);
  SetAge(FileOf(one_), 1800);
  ASSERT_TRUE(folder_.Load(one_.key).ok());
  EXPECT_GE(AgeOf(FileOf(one_)), 1800);
  SetAge(FileOf(one_), 3700);
  ASSERT_TRUE(folder_.Load(one_.key).ok());
  EXPECT_LT(AgeOf(FileOf(one_)), 100);
}

TEST_F(FolderTest, PrunesWhatWasNotUsedForLongest) {
  std::vector<Entry> entries;
  for (int i = 0; i < 20; ++i) entries.push_back(SampleEntry(i));
  ASSERT_TRUE(folder_.Save(entries).ok());
  for (int i = 0; i < 20; ++i) SetAge(FileOf(entries[static_cast<size_t>(i)]), 100 * (i + 1));
  EXPECT_EQ(*folder_.Prune(20 * 4096), 0);
  EXPECT_EQ(*folder_.Prune(5 * 4096), 15);
  EXPECT_THAT(*folder_.List(), SizeIs(5));
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(folder_.Load(entries[i].key).ok(), i < 5);
  ASSERT_TRUE(folder_.Remove(entries[0].key.FileName()).ok());
  EXPECT_THAT(*folder_.List(), SizeIs(4));
}

TEST_F(FolderTest, StaysWithinItsBudget) {
  Folder small({.path = path(), .byte_budget = 10 * 4096});
  for (int i = 0; i < 100; ++i) {
    const Entry entry = SampleEntry(i);
    ASSERT_TRUE(small.Save({&entry, 1}).ok());
    ASSERT_LE(small.List()->size(), 11u);
  }
  Folder none({.path = path(), .byte_budget = 0});
  EXPECT_TRUE(none.Save({&one_, 1}).ok());
  Entry large = two_;
  large.code.resize(50000);
  EXPECT_TRUE(small.Save({&large, 1}).ok());
  EXPECT_EQ(small.Load(two_.key).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FolderTest, WhatDeadWritersLeftIsSwept) {
  Save(one_);
  const fs::path old = files() / "tmp-1-1-1", young = files() / "tmp-1-1-2", other = files() / "notes";
  for (const fs::path& file : {old, young, other}) WriteFile(file, {});
  SetAge(old, 3600);
  SetAge(other, 3600);
  EXPECT_TRUE(Folder({.path = path()}).Save({&two_, 1}).ok());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(FolderTest, ProcessesRecordWhatTheyDid) {
  EXPECT_EQ(folder_.ReadUsage().status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(folder_.Record({}, "p0").ok());
  EXPECT_FALSE(fs::exists(path()));
  const std::string a = one_.key.Name(), b = two_.key.Name();
  ASSERT_TRUE(folder_.Record({.hits = {{a, 2}}, .rejections = {{"data_type", {1, "xbyak rejects\nit"}}}}, "p1").ok());
  ASSERT_TRUE(folder_.Record({.hits = {{a, 3}, {b, 1}}, .rejections = {}}, "p1").ok());
  ASSERT_TRUE(folder_.Record({.hits = {}, .rejections = {{"data_type", {4, "another"}}}}, "p2").ok());
  std::ofstream(files() / "use/p2", std::ios::app) << "hit x -1\nnonsense\n\nhit " << a << " 7";  // half a line
  ASSERT_EQ(mkfifo((files() / "use/fifo").c_str(), 0600), 0);
  int64_t processes = 0;
  const Usage usage = *folder_.ReadUsage(&processes);
  EXPECT_EQ(processes, 2);
  EXPECT_EQ(usage.hits, (std::map<std::string, int64_t>{{a, 5}, {b, 1}}));
  ASSERT_EQ(usage.rejections.size(), 1u);
  EXPECT_EQ(usage.rejections.at("data_type").count, 5);
  EXPECT_THAT(usage.rejections.at("data_type").example, ::testing::AnyOf("xbyak rejects it", "another"));
  ASSERT_TRUE(folder_.ForgetUsage().ok());
  EXPECT_TRUE(folder_.ReadUsage()->empty());
}

TEST_F(FolderTest, OldRecordsGo) {
  Save(one_);
  for (int i = 0; i < 260; ++i) {
    const std::string process = "p" + std::to_string(i);
    ASSERT_TRUE(folder_.Record({.hits = {{"k", 1}}, .rejections = {}}, process).ok());
    SetAge(files() / "use" / process, i);
  }
  ASSERT_TRUE(folder_.Prune(1 << 20).ok());
  EXPECT_EQ(folder_.ReadUsage()->hits.at("k"), 256);
  EXPECT_TRUE(fs::exists(files() / "use/p0"));
  EXPECT_FALSE(fs::exists(files() / "use/p259"));
}

}  // namespace
}  // namespace clikart::cache
