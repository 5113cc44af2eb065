#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "cli_testing.h"
#include "json.h"
#include "table.h"
#include "tar.h"

namespace clikart::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, UsageErrors) {
  EXPECT_EQ(Do({}), kUsage);
  EXPECT_THAT(err_, HasSubstr("--help"));
  EXPECT_EQ(Do({"lists"}), kUsage);
  EXPECT_THAT(err_, HasSubstr("unknown command \"lists\""));
  EXPECT_EQ(Do({"list", "x"}), kUsage);
  EXPECT_EQ(Do({"show"}), kUsage);
  EXPECT_EQ(Do({"import", "a", "b"}), kUsage);
  base_.sort = "size";
  EXPECT_EQ(Do({"list"}), kUsage);
  base_.to = "1T";
  EXPECT_EQ(Do({"prune"}), kUsage);
  EXPECT_EQ(Do({"help"}), kDone);
  for (const Command& command : Commands()) EXPECT_THAT(out_, HasSubstr(command.name));
}

TEST_F(CliTest, AnEmptyFolder) {
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_EQ(out_, "[]\n");
  EXPECT_EQ(Do({"stats"}), kDone);
  EXPECT_EQ(Do({"verify"}), kDone);
  EXPECT_EQ(Do({"clear"}), kDone);
  EXPECT_EQ(out_, "removed 0 entries\n");
  EXPECT_EQ(Do({"show", "a"}), kBadEntries);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(CliTest, ListSorts) {
  Fill(4);
  base_.sort = "code";
  EXPECT_EQ(Do({"list"}), kDone);
  EXPECT_THAT(out_, AllOf(StartsWith("KEY "), Not(HasSubstr("\033"))));
  const auto at = [&](int64_t n) { return out_.find(KeyOf(n).substr(0, 12)); };
  EXPECT_LT(at(4), at(3));
  EXPECT_LT(at(3), at(2));
  EXPECT_LT(at(2), at(1));
  ASSERT_NE(at(1), std::string::npos);
  EXPECT_THAT(out_, AllOf(HasSubstr("xbyak"), HasSubstr("llvm"), HasSubstr("this hour"), HasSubstr("400 B")));
  base_.bold = true;
  EXPECT_EQ(Do({"list"}), kDone);
  EXPECT_THAT(out_, HasSubstr("\033[1m"));
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"key\": \"" + KeyOf(2) + "\""), HasSubstr("\"jit_seconds\": 0.000002000"),
                          HasSubstr("\"this_build\": false"), HasSubstr("\"code_bytes\": 300")));
}

TEST_F(CliTest, ShowTakesPrefixes) {
  Fill(40);
  EXPECT_EQ(Do({"show", KeyOf(1).substr(0, 16)}), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("key: " + KeyOf(1)), HasSubstr("\n  n=1\n"), HasSubstr("this one"),
                          HasSubstr("row_block=6"), HasSubstr("micro 6x1"), HasSubstr("epilogue program:")));
  EXPECT_EQ(Do({"show", KeyOf(1), KeyOf(2)}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"driver\": \"panels\""), HasSubstr("\"multiplies\": 12"), HasSubstr(KeyOf(2))));
  EXPECT_EQ(Do({"show", "xyz"}), kBadEntries);
  EXPECT_THAT(err_, HasSubstr("no key begins with \"xyz\""));
  EXPECT_EQ(Do({"show", ""}), kBadEntries);
  EXPECT_THAT(err_, HasSubstr("more than one key"));
}

TEST_F(CliTest, StatsCount) {
  Fill(4);
  EXPECT_EQ(Do({"stats"}), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("4 (2 of this build)"), HasSubstr("llvm 2, xbyak 2"), HasSubstr("avx2 4")));
  EXPECT_EQ(Do({"stats"}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"entries\": 4"), HasSubstr("\"emitters\": {\"llvm\": 2, \"xbyak\": 2}")));
}

TEST_F(CliTest, WhatProcessesWroteDown) {
  Fill(3);
  EXPECT_EQ(Do({"rejections"}, true), kDone);
  EXPECT_EQ(out_, "[]\n");
  const cache::Folder folder({.path = path()});
  const cache::Usage usage{.hits = {{KeyOf(1), 5}, {KeyOf(3), 8}},
                           .rejections = {{"data_type", {2, "xbyak rejects f64"}}}};
  ASSERT_TRUE(folder.Record(usage, "1-1").ok());
  ASSERT_TRUE(folder.Record(usage, "2-1").ok());
  EXPECT_EQ(Do({"rejections"}), kDone);
  EXPECT_THAT(out_, HasSubstr("    4  data_type  xbyak rejects f64"));
  EXPECT_EQ(Do({"rejections"}, true), kDone);
  EXPECT_THAT(out_, HasSubstr("{\"reason\": \"data_type\", \"count\": 4, \"example\": \"xbyak rejects f64\"}"));
  base_.sort = "hits";
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_LT(out_.find("\"hits\": 16"), out_.find("\"hits\": 10"));
  EXPECT_LT(out_.find("\"hits\": 10"), out_.find("\"hits\": 0"));
  EXPECT_EQ(Do({"stats"}), kDone);
  EXPECT_THAT(out_, HasSubstr("26 by the last 2 processes"));
  EXPECT_EQ(Do({"clear"}), kDone);
  EXPECT_EQ(Do({"rejections"}, true), kDone);
  EXPECT_EQ(out_, "[]\n");
}

TEST_F(CliTest, VerifyTellsWhatIsDamaged) {
  Fill(3);
  EXPECT_EQ(Do({"verify"}), kDone);
  EXPECT_EQ(out_, "3 files, 0 damaged\n");
  fs::resize_file(fs::path(path()) / "v1" / EntryNumber(2).key.FileName(), 300);
  EXPECT_EQ(Do({"verify"}), kBadEntries);
  EXPECT_THAT(out_, AllOf(HasSubstr(KeyOf(2)), HasSubstr("SHA-256"), HasSubstr("3 files, 1 damaged")));
  EXPECT_EQ(Do({"verify"}, true), kBadEntries);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"entries\": 3"), HasSubstr("\"problem\": ")));
  EXPECT_EQ(Do({"show", KeyOf(2)}), kBadEntries);
  EXPECT_EQ(Do({"list"}), kDone);
  EXPECT_THAT(err_, HasSubstr("1 damaged"));
  EXPECT_TRUE(fs::exists(fs::path(path()) / "v1" / EntryNumber(2).key.FileName()));  // looking moves nothing
}

TEST_F(CliTest, PruneAndClear) {
  Fill(6);
  base_.to = "16K";
  EXPECT_EQ(Do({"prune"}), kDone);
  EXPECT_EQ(out_, "removed 2 entries\n");
  base_.other_builds = true;
  EXPECT_EQ(Do({"prune"}, true), kDone);
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_THAT(out_, Not(HasSubstr("\"this_build\": false")));
  EXPECT_EQ(Do({"clear"}), kDone);
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_EQ(out_, "[]\n");
}

TEST_F(CliTest, ArchivesGoAndCome) {
  Fill(20);
  const std::string archive = place_ / "kernels.tar";
  EXPECT_EQ(Do({"export", archive}), kDone);
  EXPECT_EQ(out_, "exported 20 entries\n");
  FILE* const tar = popen(("tar tf " + archive + " | wc -l").c_str(), "r");
  int lines = 0;
  EXPECT_EQ(std::fscanf(tar, "%d", &lines), 1);
  pclose(tar);
  EXPECT_EQ(lines, 20);
  EXPECT_EQ(Do({"clear"}), kDone);
  EXPECT_EQ(Do({"import", archive}, true), kDone);
  EXPECT_EQ(out_, "{\"imported\": 20}\n");
  cache::Folder folder({.path = path()});
  EXPECT_EQ(*folder.Load(EntryNumber(7).key), EntryNumber(7));
  EXPECT_EQ(Do({"export", archive, KeyOf(3)}), kDone);
  EXPECT_EQ(out_, "exported 1 entry\n");
  EXPECT_EQ(Do({"export", "-", KeyOf(3)}), kDone);
  std::ifstream file(archive, std::ios::binary);
  EXPECT_EQ(out_, std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_EQ(Do({"export", place_ / "none" / "x"}), kFailed);
}

TEST_F(CliTest, ImportTakesAllOrNothing) {
  Fill(2);
  const std::string archive = place_ / "kernels.tar";
  ASSERT_EQ(Do({"export", archive}), kDone);
  ASSERT_EQ(Do({"clear"}), kDone);
  std::ifstream file(archive, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  const auto import = [&](const std::string& bytes) {
    std::ofstream(archive, std::ios::binary | std::ios::trunc) << bytes;
    return Do({"import", archive});
  };
  for (const size_t at : {size_t{0}, size_t{130}, size_t{600}, good.size() / 2}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_EQ(import(bad), kBadEntries) << at;
    EXPECT_EQ(import(good.substr(0, at)), kBadEntries);
  }
  EXPECT_EQ(import(good.substr(0, good.size() - 1024)), kBadEntries);  // without its end
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_EQ(out_, "[]\n");
  EXPECT_EQ(import(good), kDone);
  EXPECT_EQ(Do({"import", place_ / "none"}), kFailed);
}

TEST_F(CliTest, WhatIsMadeForAllUsersIsReadable) {
  Fill(1);
  const std::string archive = place_ / "kernels.tar";
  ASSERT_EQ(Do({"export", archive}), kDone);
  fs::remove_all(path());
  const mode_t before = umask(022);
  base_.for_all_users = true;
  ASSERT_EQ(Do({"import", archive}), kDone);
  umask(before);
  EXPECT_EQ(fs::status(path()).permissions(), static_cast<fs::perms>(0755));
  const fs::path file = fs::path(path()) / "v1" / EntryNumber(1).key.FileName();
  EXPECT_EQ(fs::status(file).permissions(), static_cast<fs::perms>(0644));
}

TEST_F(CliTest, AFolderOpenToOthers) {
  Fill(1);
  ASSERT_EQ(chmod(path().c_str(), 0777), 0);
  for (const char* command : {"list", "stats", "verify", "prune", "clear"}) {
    EXPECT_EQ(Do({command}), kFailed);
    EXPECT_THAT(err_, HasSubstr("chmod go-w"));
  }
}

TEST(JsonTest, Quotes) {
  EXPECT_EQ(Quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
  EXPECT_EQ(JsonArray({}), "[]");
}

TEST(TextTest, Figures) {
  EXPECT_EQ(Size(1023), "1023 B");
  EXPECT_EQ(Size(1536), "1.5 KiB");
  EXPECT_EQ(Size(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(Ago(100), "this hour");
  EXPECT_EQ(Ago(7200), "2 h ago");
  EXPECT_EQ(Ago(1000000), "11 d ago");
  EXPECT_EQ(Milliseconds(1234567), "1.23 ms");
}

}  // namespace
}  // namespace clikart::cli
