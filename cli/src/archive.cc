// export, import.
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "clikart/cache/object_file.h"
#include "command.h"
#include "json.h"
#include "tar.h"

namespace clikart::cli {
namespace {

// Entries made durable together.
constexpr size_t kBatch = 16;

int Tell(const Invocation& invocation, std::ostream& out, const char* done, int64_t count) {
  if (invocation.json) {
    out << JsonObject().Number(done, count).ToString() << "\n";
  } else {
    out << done << " " << count << (count == 1 ? " entry\n" : " entries\n");
  }
  return kDone;
}

}  // namespace

int Export(const Invocation& invocation) {
  const std::string& path = invocation.arguments[0];
  const auto selected = Select(invocation, std::span(invocation.arguments).subspan(1));
  if (!selected.ok()) return Fail(invocation, selected.status());
  std::string archive;
  const auto append = [&](const std::vector<uint8_t>& bytes) {
    archive.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  int64_t count = 0;
  for (const Found& found : *selected) {
    if (!found.entry.ok()) {
      *invocation.err << "clikart-cache: left out: " << std::string(found.entry.status().message()) << "\n";
      continue;
    }
    const absl::StatusOr<std::vector<uint8_t>> bytes = cache::Serialize(*found.entry);
    if (!bytes.ok()) return Fail(invocation, bytes.status());
    append(TarMemberBytes(found.file.name, *bytes));
    ++count;
  }
  append(TarEnd());
  if (path == "-") {
    *invocation.out << archive << std::flush;
    return invocation.out->good() ? kDone : kFailed;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << archive << std::flush;
  if (!file) return Fail(invocation, absl::UnavailableError(absl::StrCat("cannot write \"", path, "\"")));
  return Tell(invocation, *invocation.out, "exported", count);
}

int Import(const Invocation& invocation) {
  if (invocation.arguments.size() != 1) {
    *invocation.err << "clikart-cache: import takes one archive\n";
    return kUsage;
  }
  const std::string& path = invocation.arguments[0];
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& input = path == "-" ? std::cin : file;
  const std::string archive{std::istreambuf_iterator<char>(input), {}};
  if (!input.good() && !input.eof()) {
    return Fail(invocation, absl::UnavailableError(absl::StrCat("cannot read \"", path, "\"")));
  }
  const auto members = ReadTar({reinterpret_cast<const uint8_t*>(archive.data()), archive.size()});
  if (!members.ok()) return Fail(invocation, members.status());
  // All of them are looked at before one is added.
  std::vector<cache::Entry> entries;
  for (const TarMember& member : *members) {
    absl::StatusOr<cache::Entry> entry = cache::Parse(member.content);
    if (entry.ok() && entry->key.FileName() != member.name) {
      entry = absl::DataLossError("it holds another kernel than its name says");
    }
    if (!entry.ok()) {
      return Fail(invocation, absl::DataLossError(absl::StrCat("nothing is imported: ", member.name, ": ",
                                                               std::string(entry.status().message()))));
    }
    entries.push_back(*std::move(entry));
  }
  cache::Folder folder({.path = invocation.path,
                        .byte_budget = invocation.byte_budget,
                        .folder_mode = static_cast<mode_t>(invocation.for_all_users ? 0755 : 0700)});
  int64_t saved = 0;
  for (size_t i = 0; i < entries.size(); i += kBatch) {
    const auto batch = std::span<const cache::Entry>(entries).subspan(i, std::min(kBatch, entries.size() - i));
    if (const absl::Status status = folder.Save(batch, &saved); !status.ok()) return Fail(invocation, status);
  }
  return Tell(invocation, *invocation.out, "imported", saved);
}

}  // namespace clikart::cli
