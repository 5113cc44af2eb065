// How many threads this process should use: its affinity and its container's CPU quota.
#pragma once

#include <optional>
#include <string>

namespace clikart {

// CPUs that a CPU quota allows (cgroup v1 or v2, the tightest of this process's group and all above
// it); empty without one. `root` stands before /proc and /sys, so that tests can bring their own.
std::optional<double> CgroupCpuQuota(const std::string& root);

// max(1, floor(min(affinity, quota))).
int UsableCpus();

// CPUs of the machine that are online.
int LogicalCpus();

}  // namespace clikart
