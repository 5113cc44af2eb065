#include "memory_policies.h"

#include <sys/prctl.h>

#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66  // Linux 6.3
#endif

namespace clikart {
namespace {

std::string FirstWord(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "Seccomp:	2" of /proc/self/status.
bool HasSeccompFilter() {
  std::ifstream status("/proc/self/status");
  for (std::string name, value; status >> name;) {
    if (name == "Seccomp:") return status >> value && value == "2";
    std::getline(status, value);
  }
  return false;
}

}  // namespace

std::string MemoryPoliciesInForce() {
  std::vector<std::string> found;
  if (prctl(PR_GET_MDWE, 0, 0, 0, 0) > 0) found.push_back("PR_SET_MDWE (MemoryDenyWriteExecute= of systemd)");
  if (HasSeccompFilter()) found.push_back("a seccomp filter");
  if (FirstWord("/sys/fs/selinux/enforce") == "1") found.push_back("SELinux (which asks for execmem)");
  const std::string memfd = FirstWord("/proc/sys/vm/memfd_noexec");
  if (!memfd.empty() && memfd != "0") found.push_back(absl::StrCat("vm.memfd_noexec=", memfd));
  return absl::StrJoin(found, ", ");
}

}  // namespace clikart
