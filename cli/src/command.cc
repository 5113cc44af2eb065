#include "command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace clikart::cli {
namespace {

constexpr Command kCommands[] = {
    {"list", "", "the entries, one a line (--sort)", &List},
    {"show", "KEY...", "everything an entry says: signature field by field, schedule, epilogue program", &Show},
    {"disasm", "KEY...", "the instructions, with entry points and loops; main loops are marked with *", &Disasm},
    {"mca", "KEY...", "cycles and bottleneck of the main loops, as LLVM's models of CPUs have it (--cpu)", &Mca},
    {"stats", "", "how many entries, of which emitters and ISA levels, how large", &Stats},
    {"rejections", "", "why processes could not have a kernel, and how often", &Rejections},
    {"verify", "", "read every entry whole; status 2 where one is damaged", &Verify},
    {"prune", "", "remove what was not used for longest (--to), or entries of other builds (--other_builds)", &Prune},
    {"clear", "", "remove every entry and what processes wrote down", &Clear},
    {"export", "FILE [KEY...]", "write all entries, or those, to a tar archive (- for standard output)", &Export},
    {"import", "FILE", "verify the entries of an archive (- for standard input) and add them", &Import},
    {"warmup", "MANIFEST", "compile the kernels that a process recorded (--target, --jobs)", &WarmUp},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

std::string Help() {
  std::string text =
      "NAME\n"
      "    clikart-cache - look into and look after the folder of generated kernels\n\n"
      "SYNOPSIS\n"
      "    clikart-cache [OPTION...] COMMAND [ARGUMENT...]\n\n"
      "COMMANDS\n";
  for (const Command& command : kCommands) {
    absl::StrAppend(&text, "    ", command.name, *command.arguments == '\0' ? "" : " ", command.arguments, "\n        ",
                    command.summary, "\n");
  }
  return text +
         "\n    KEY is the beginning of an entry's key, as long as it fits one entry only.\n\n"
         "OPTIONS\n"
         "    --dir=FOLDER     the cache folder; else CLIKART_CACHE_DIR, $XDG_CACHE_HOME/clikart, ~/.cache/clikart\n"
         "    --system         the folder for all users: CLIKART_CACHE_SYSTEM_DIR, /var/cache/clikart\n"
         "    --json           print JSON (docs/cache.md has the schema)\n"
         "    --sort=COLUMN    list by use, hits, jit, code, isa, emitter, signature or key (default: use)\n"
         "    --to=BYTES       prune to this size; K, M and G are understood (default: CLIKART_CACHE_DISK_SIZE)\n"
         "    --other_builds   prune the entries that this build of the library cannot use\n"
         "    --cpu=NAME       predict for this CPU, by LLVM's name: znver4, sapphirerapids (default: some that have "
         "the\n"
         "                     instructions)\n"
         "    --target=TARGET  compile for an ISA level (avx2) and all below it, or for features as processes there\n"
         "                     report them (\"avx512_vnni: sse42 avx2 avx512 avx512_vnni\"); nothing is run (default:\n"
         "                     this machine)\n"
         "    --jobs=COUNT     compile so many kernels at a time (default: the threads of a forward)\n"
         "    --help           this text\n\n"
         "EXIT STATUS\n"
         "    0  done\n"
         "    1  wrong usage\n"
         "    2  no entry has that key, several have, an entry or a manifest is damaged, or a kernel of it failed\n"
         "    3  the folder, an archive or a manifest cannot be used, or LLVM is not there for disasm and mca\n\n"
         "ENVIRONMENT\n"
         "    CLIKART_CACHE_DIR, CLIKART_CACHE_SYSTEM_DIR, CLIKART_CACHE_DISK_SIZE (docs/environment.md)\n"
         "    CLIKART_NUM_THREADS, CLIKART_MAX_ISA for warmup without --jobs and --target\n"
         "    NO_COLOR         no bold headings; there are none either where the output is not a terminal\n\n"
         "Importing an archive lets its code run in your processes: import only what you would run yourself.\n";
}

int Run(Invocation invocation) {
  if (invocation.arguments.empty()) {
    *invocation.err << "clikart-cache: no command given (clikart-cache --help lists them)\n";
    return kUsage;
  }
  const std::string name = invocation.arguments.front();
  invocation.arguments.erase(invocation.arguments.begin());
  if (name == "help") {
    *invocation.out << Help();
    return kDone;
  }
  const auto command =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Command& c) { return name == c.name; });
  if (command == std::end(kCommands)) {
    *invocation.err << "clikart-cache: unknown command \"" << name << "\" (clikart-cache --help lists them)\n";
    return kUsage;
  }
  const bool takes_none = *command->arguments == '\0';
  if (takes_none != invocation.arguments.empty()) {
    *invocation.err << "clikart-cache: " << name << (takes_none ? " takes no argument\n" : " takes ")
                    << command->arguments << (takes_none ? "" : "\n");
    return kUsage;
  }
  if (invocation.path.empty()) {
    *invocation.err << "clikart-cache: no home folder is known; name one with --dir or CLIKART_CACHE_DIR\n";
    return kFailed;
  }
  return command->run(invocation);
}

int Fail(const Invocation& invocation, const absl::Status& status) {
  *invocation.err << "clikart-cache: " << std::string(status.message()) << "\n";
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ? kBadEntries
         : absl::IsInvalidArgument(status)                    ? kUsage
                                                              : kFailed;
}

absl::StatusOr<std::vector<Found>> ReadAll(const Invocation& invocation) {
  const cache::Folder folder({.path = invocation.path, .access = cache::Access::kReadOnly});
  const absl::StatusOr<std::vector<cache::FileInfo>> files = folder.List();
  if (absl::IsNotFound(files.status())) return std::vector<Found>();
  if (!files.ok()) return files.status();
  std::vector<Found> all;
  for (const cache::FileInfo& file : *files) {
    absl::StatusOr<cache::Entry> entry = folder.Read(file.name);
    if (!absl::IsNotFound(entry.status())) all.push_back({file, std::move(entry)});  // else it went meanwhile
  }
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.file.name < b.file.name; });
  return all;
}

absl::StatusOr<cache::Usage> UsageOf(const Invocation& invocation, int64_t& processes) {
  const cache::Folder folder({.path = invocation.path, .access = cache::Access::kReadOnly});
  absl::StatusOr<cache::Usage> usage = folder.ReadUsage(&processes);
  if (absl::IsNotFound(usage.status())) return cache::Usage();
  return usage;
}

absl::StatusOr<std::vector<Found>> Select(const Invocation& invocation, std::span<const std::string> prefixes) {
  absl::StatusOr<std::vector<Found>> all = ReadAll(invocation);
  if (!all.ok() || prefixes.empty()) return all;
  std::vector<Found> selected;
  for (const std::string& prefix : prefixes) {
    const Found* match = nullptr;
    for (const Found& found : *all) {
      if (!found.file.name.starts_with(prefix)) continue;
      if (match != nullptr) {
        return absl::NotFoundError(absl::StrCat("more than one key begins with \"", prefix, "\": ", match->key(),
                                                " and ", found.key(), ", for example"));
      }
      match = &found;
    }
    if (match == nullptr) return absl::NotFoundError(absl::StrCat("no key begins with \"", prefix, "\""));
    selected.push_back(*match);
  }
  return selected;
}

}  // namespace clikart::cli
