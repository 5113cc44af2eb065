#include "thread_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace clikart {
namespace {

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool Lists(const std::string& comma_separated, std::string_view item) {
  const std::vector<std::string> items = absl::StrSplit(comma_separated, ',');
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Where a hierarchy is mounted and which of its groups is seen there as the top.
struct Mount {
  std::string point, top;
};

// From /proc/self/mountinfo: "id parent major:minor top point options ... - type source super-options".
std::optional<Mount> FindMount(const std::string& root, bool v2) {
  for (const std::string& line : Lines(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool matches = v2 ? right[0] == "cgroup2" : right[0] == "cgroup" && Lists(right[2], "cpu");
    if (matches) return Mount{left[4], left[3]};
  }
  return std::nullopt;
}

// From /proc/self/cgroup: "id:controllers:path"; version 2 has no controllers.
std::optional<std::string> FindGroup(const std::string& root, bool v2) {
  for (const std::string& line : Lines(root + "/proc/self/cgroup")) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (v2 ? fields[0] == "0" && fields[1].empty() : Lists(fields[1], "cpu")) return fields[2];
  }
  return std::nullopt;
}

std::optional<double> Ratio(const std::string& quota, const std::string& period) {
  int64_t allowed = 0, of = 0;
  if (!absl::SimpleAtoi(quota, &allowed) || !absl::SimpleAtoi(period, &of) || allowed <= 0 || of <= 0) {
    return std::nullopt;  // "max", -1 and what nobody expects: no limit
  }
  return static_cast<double>(allowed) / static_cast<double>(of);
}

std::optional<double> QuotaOfGroup(const std::string& folder, bool v2) {
  if (!v2) {
    const auto quota = Lines(folder + "/cpu.cfs_quota_us"), period = Lines(folder + "/cpu.cfs_period_us");
    return quota.empty() || period.empty() ? std::nullopt : Ratio(quota[0], period[0]);
  }
  const auto lines = Lines(folder + "/cpu.max");
  if (lines.empty()) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(lines[0], ' ');
  return fields.size() == 2 ? Ratio(fields[0], fields[1]) : std::nullopt;
}

}  // namespace

std::optional<double> CgroupCpuQuota(const std::string& root) {
  std::optional<double> tightest;
  for (const bool v2 : {false, true}) {
    const std::optional<Mount> mount = FindMount(root, v2);
    const std::optional<std::string> group = FindGroup(root, v2);
    if (!mount || !group) continue;
    // Inside a container the mount may show only a part of the hierarchy: the rest is above its top.
    std::string below = *group;
    if (mount->top != "/") {
      const bool inside = absl::StartsWith(below, mount->top);
      below = inside ? below.substr(mount->top.size()) : std::string();
    }
    while (true) {
      const std::optional<double> quota = QuotaOfGroup(absl::StrCat(root, mount->point, below), v2);
      if (quota && (!tightest || *quota < *tightest)) tightest = quota;
      const size_t slash = below.rfind('/');
      if (below.empty() || slash == std::string::npos) break;
      below.resize(slash);
    }
  }
  return tightest;
}

int LogicalCpus() { return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); }

int UsableCpus() {
  int affinity = LogicalCpus();
  // A set sized for the machine: more than 1024 CPUs do not fit the fixed cpu_set_t.
  const int possible = std::max(affinity, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  if (cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(possible) + 1024); set != nullptr) {
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(possible) + 1024);
    if (sched_getaffinity(0, bytes, set) == 0) affinity = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  const double quota = CgroupCpuQuota("").value_or(affinity);
  return std::max(1, static_cast<int>(std::floor(std::min<double>(affinity, quota))));
}

}  // namespace clikart
