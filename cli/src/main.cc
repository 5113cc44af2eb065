#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "build_identity.h"
#include "command.h"
#include "environment.h"

ABSL_FLAG(std::string, dir, "", "the cache folder");
ABSL_FLAG(bool, system, false, "the folder for all users");
ABSL_FLAG(bool, json, false, "print JSON");
ABSL_FLAG(std::string, sort, "use", "column to list by");
ABSL_FLAG(std::string, to, "", "size to prune to");
ABSL_FLAG(bool, other_builds, false, "prune the entries of other builds");
ABSL_FLAG(std::string, cpu, "", "CPU to predict for");
ABSL_FLAG(std::string, target, "", "machine to compile for");
ABSL_FLAG(int, jobs, 0, "kernels to compile at a time");

namespace {

using clikart::Environment;
using clikart::cli::Invocation;

int Main(int argc, char** argv) {
  // Abseil's own help lists flags; a manual page says more.
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h" || argument == "-help") {
      std::cout << clikart::cli::Help();
      return clikart::cli::kDone;
    }
  }
  absl::SetProgramUsageMessage("clikart-cache [OPTION...] COMMAND [ARGUMENT...]");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<Environment>& environment = Environment::Get();
  if (!environment.ok()) {
    std::cerr << "clikart-cache: " << std::string(environment.status().message()) << "\n";
    return clikart::cli::kUsage;
  }
  Invocation invocation;
  invocation.path = absl::GetFlag(FLAGS_system) ? environment->cache_system_dir : environment->cache_dir;
  if (const std::string dir = absl::GetFlag(FLAGS_dir); !dir.empty()) invocation.path = dir;
  // What is made for all users has to be readable by them, and writable by none.
  umask(absl::GetFlag(FLAGS_system) ? 022 : 077);
  invocation.for_all_users = absl::GetFlag(FLAGS_system);
  invocation.byte_budget = environment->cache_disk_bytes;
  invocation.build = std::string(clikart::BuildIdentity());
  invocation.json = absl::GetFlag(FLAGS_json);
  const char* const no_color = std::getenv("NO_COLOR");
  invocation.bold = isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
  invocation.sort = absl::GetFlag(FLAGS_sort);
  invocation.to = absl::GetFlag(FLAGS_to);
  invocation.other_builds = absl::GetFlag(FLAGS_other_builds);
  invocation.cpu = absl::GetFlag(FLAGS_cpu);
  invocation.target = absl::GetFlag(FLAGS_target);
  invocation.jobs = absl::GetFlag(FLAGS_jobs);
  invocation.progress = isatty(STDERR_FILENO) != 0;
  invocation.arguments.assign(words.begin() + 1, words.end());
  invocation.out = &std::cout;
  invocation.err = &std::cerr;
  return clikart::cli::Run(std::move(invocation));
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
