#include "thread_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "fork_testing.h"

namespace clikart {
namespace {

// A file system of a few files.
class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() : root_(std::filesystem::path(::testing::TempDir()) / ("cgroup_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
  }
  ~CgroupTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<double> Quota() const { return CgroupCpuQuota(root_.string()); }

  const std::filesystem::path root_;
};

constexpr char kMountV2[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(CgroupTest, NothingThere) { EXPECT_EQ(Quota(), std::nullopt); }

TEST_F(CgroupTest, VersionTwoTakesTheTightestAncestor) {
  Write("proc/self/mountinfo", kMountV2);
  Write("proc/self/cgroup", "0::/pod/container\n");
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(Quota(), 2.5);
  Write("sys/fs/cgroup/pod/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota(), 0.5);
  Write("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(Quota(), 0.2);
}

TEST_F(CgroupTest, VersionTwoInItsOwnNamespace) {
  Write("proc/self/mountinfo", kMountV2);
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3.0);
}

TEST_F(CgroupTest, VersionOne) {
  Write("proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  Write("proc/self/cgroup", "4:cpuset:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(CgroupTest, GarbageIsNoLimit) {
  Write("proc/self/mountinfo", std::string("nonsense\n - \n") + kMountV2);
  Write("proc/self/cgroup", "x\n0::/a\n");
  Write("sys/fs/cgroup/a/cpu.max", "lots\n");
  EXPECT_EQ(Quota(), std::nullopt);
  Write("sys/fs/cgroup/a/cpu.max", "1000 0\n");
  EXPECT_EQ(Quota(), std::nullopt);
}

TEST(UsableCpusTest, FollowsAffinity) {
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_LE(UsableCpus(), LogicalCpus());
  EXPECT_EQ(ExitCodeOfChild([] {
              cpu_set_t set;
              sched_getaffinity(0, sizeof set, &set);
              int first = 0;
              while (!CPU_ISSET(first, &set)) ++first;
              CPU_ZERO(&set);
              CPU_SET(first, &set);
              if (sched_setaffinity(0, sizeof set, &set) != 0) return 2;
              return UsableCpus() == 1 ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace clikart
