// The commands of clikart-cache. Each writes to the streams that it is given, and answers an exit code.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/analysis/object_api.h"
#include "clikart/cache/folder.h"

namespace clikart::cli {

enum ExitCode : int { kDone = 0, kUsage = 1, kBadEntries = 2, kFailed = 3 };

struct Invocation {
  std::string path;            // of the cache folder
  int64_t byte_budget = 0;     // its setting, for stats and prune
  std::string build;           // this library's
  bool for_all_users = false;  // what is made is readable by everybody
  bool json = false;
  bool bold = false;  // headings, on a terminal
  std::string sort = "use";
  std::string to;                                           // prune
  bool other_builds = false;                                // prune
  std::string cpu;                                          // mca; empty: some well-known ones
  std::string target;                                       // warmup; empty: this machine's
  int jobs = 0;                                             // warmup
  bool progress = false;                                    // `err` is a terminal, on which to show how far warmup is
  const char* analysis_object = analysis::kAnalysisObject;  // that disasm and mca load
  std::vector<std::string> arguments;
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
};

struct Command {
  const char* name;
  const char* arguments;
  const char* summary;
  int (*run)(const Invocation& invocation);
};

std::span<const Command> Commands();
// The text of --help, as a manual page is laid out.
std::string Help();
// Runs the command named by the first argument.
int Run(Invocation invocation);

// An entry, or why its file is not one.
struct Found {
  cache::FileInfo file;
  absl::StatusOr<cache::Entry> entry;
  std::string key() const { return file.name.substr(0, file.name.size() - 2); }  // less ".o"
};

// Every file of the folder, read and verified. A folder that does not exist has none.
absl::StatusOr<std::vector<Found>> ReadAll(const Invocation& invocation);
// The files whose keys begin with the given texts, each of which has to fit one; all where none is given.
absl::StatusOr<std::vector<Found>> Select(const Invocation& invocation, std::span<const std::string> prefixes);

// What processes wrote down; nothing where none did.
absl::StatusOr<cache::Usage> UsageOf(const Invocation& invocation, int64_t& processes);

// Prints the error and answers its exit code.
int Fail(const Invocation& invocation, const absl::Status& status);

int List(const Invocation& invocation);
int Show(const Invocation& invocation);
int Stats(const Invocation& invocation);
int Verify(const Invocation& invocation);
int Prune(const Invocation& invocation);
int Clear(const Invocation& invocation);
int Rejections(const Invocation& invocation);
int Export(const Invocation& invocation);
int Import(const Invocation& invocation);
int Disasm(const Invocation& invocation);
int Mca(const Invocation& invocation);
int WarmUp(const Invocation& invocation);

}  // namespace clikart::cli
