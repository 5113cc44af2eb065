// list, show, stats, rejections.
#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/program.h"
#include "command.h"
#include "json.h"
#include "table.h"

namespace clikart::cli {
namespace {

using cache::Entry;

constexpr size_t kShortKey = 12;
constexpr char kSortByHits[] = "hits";

JsonObject Summary(const Invocation& invocation, const Found& found) {
  const Entry& entry = *found.entry;
  JsonObject object;
  object.Text("key", found.key())
      .Text("signature", entry.key.signature)
      .Text("features", entry.key.features)
      .Text("emitter", entry.key.emitter)
      .Text("isa", entry.isa)
      .Text("build", entry.key.build)
      .Flag("this_build", entry.key.build == invocation.build)
      .Number("code_bytes", static_cast<int64_t>(entry.code.size()))
      .Number("file_bytes", found.file.bytes)
      .Seconds("jit_seconds", entry.jit_nanoseconds)
      .Number("last_use", found.file.last_use);
  return object;
}

struct SortColumn {
  const char* name;
  bool (*before)(const Found& a, const Found& b);
};

constexpr SortColumn kSortColumns[] = {
    {"use", [](const Found& a, const Found& b) { return a.file.last_use > b.file.last_use; }},
    {"jit", [](const Found& a, const Found& b) { return a.entry->jit_nanoseconds > b.entry->jit_nanoseconds; }},
    {"code", [](const Found& a, const Found& b) { return a.entry->code.size() > b.entry->code.size(); }},
    {"isa", [](const Found& a, const Found& b) { return a.entry->isa < b.entry->isa; }},
    {"emitter", [](const Found& a, const Found& b) { return a.entry->key.emitter < b.entry->key.emitter; }},
    {"signature", [](const Found& a, const Found& b) { return a.entry->key.signature < b.entry->key.signature; }},
    {"key", [](const Found& a, const Found& b) { return a.file.name < b.file.name; }},
};

// Tells of damaged files once, beside the table of the others.
void DropBad(const Invocation& invocation, std::vector<Found>& all) {
  const auto bad = std::stable_partition(all.begin(), all.end(), [](const Found& found) { return found.entry.ok(); });
  if (bad != all.end()) {
    *invocation.err << "clikart-cache: " << all.end() - bad << " damaged (clikart-cache verify tells which)\n";
  }
  all.erase(bad, all.end());
}

// "name=value" words, each on a line of its own.
std::string Lines(const std::string& words) { return absl::StrReplaceAll(words, {{" ", "\n  "}}); }

std::string ProgramText(const std::string& signature) {
  const absl::StatusOr<ir::KernelSpec> spec = ir::KernelSpec::Parse(signature);
  if (!spec.ok()) return "";  // of a build whose specs differ
  const ir::Program& program = ir::ProgramOf(spec->activation);
  return program.IsIdentity() ? "" : program.ToString();
}

void ShowText(const Invocation& invocation, const Found& found) {
  const Entry& entry = *found.entry;
  std::ostream& out = *invocation.out;
  out << "key: " << found.key() << "\nsignature:\n  " << Lines(entry.key.signature)
      << "\nfeatures: " << entry.key.features << "\nisa: " << entry.isa << "\nemitter: " << entry.key.emitter
      << "\nbuild: " << entry.key.build << (entry.key.build == invocation.build ? " (this one)" : " (another one)")
      << "\ndriver: " << entry.driver << "\nschedule:\n  " << Lines(entry.schedule) << "\ncode: " << entry.code.size()
      << " bytes, " << entry.instruction_bytes << " of them instructions, " << entry.entry_points.size()
      << " entry points\ngenerated in: " << Milliseconds(entry.jit_nanoseconds)
      << "\nlast use: " << Ago(time(nullptr) - found.file.last_use) << "\n";
  if (!entry.loops.empty()) {
    out << "loops:\n";
    std::vector<std::vector<std::string>> rows;
    for (const cache::Loop& loop : entry.loops) {
      rows.push_back({absl::StrCat("  ", loop.name), absl::StrCat(loop.begin), absl::StrCat(loop.end - loop.begin),
                      absl::StrCat(loop.multiplies)});
    }
    PrintTable(out, {{"  name"}, {"at", true}, {"bytes", true}, {"multiplications", true}}, rows, false);
  }
  if (const std::string program = ProgramText(entry.key.signature); !program.empty()) {
    out << "epilogue program:\n  " << absl::StrReplaceAll(program, {{"\n", "\n  "}}) << "\n";
  }
}

std::string ShowJson(const Invocation& invocation, const Found& found) {
  const Entry& entry = *found.entry;
  JsonObject object = Summary(invocation, found);
  std::vector<std::string> points, loops;
  for (const cache::EntryPoint& point : entry.entry_points) {
    points.push_back(JsonObject().Number("number", point.number).Number("offset", point.offset).ToString());
  }
  for (const cache::Loop& loop : entry.loops) {
    loops.push_back(JsonObject()
                        .Text("name", loop.name)
                        .Number("begin", loop.begin)
                        .Number("end", loop.end)
                        .Number("multiplies", loop.multiplies)
                        .ToString());
  }
  object.Text("driver", entry.driver)
      .Text("schedule", entry.schedule)
      .Number("instruction_bytes", entry.instruction_bytes)
      .Raw("entry_points", JsonArray(points))
      .Raw("loops", JsonArray(loops))
      .Text("program", ProgramText(entry.key.signature));
  return object.ToString();
}

}  // namespace

int List(const Invocation& invocation) {
  const auto column = std::find_if(std::begin(kSortColumns), std::end(kSortColumns),
                                   [&](const SortColumn& candidate) { return invocation.sort == candidate.name; });
  if (column == std::end(kSortColumns) && invocation.sort != kSortByHits) {
    *invocation.err << "clikart-cache: --sort takes use, hits, jit, code, isa, emitter, signature or key\n";
    return kUsage;
  }
  absl::StatusOr<std::vector<Found>> all = ReadAll(invocation);
  if (!all.ok()) return Fail(invocation, all.status());
  int64_t processes = 0;
  const absl::StatusOr<cache::Usage> usage = UsageOf(invocation, processes);
  if (!usage.ok()) return Fail(invocation, usage.status());
  const auto hits = [&](const Found& found) {
    const auto counted = usage->hits.find(found.key());
    return counted == usage->hits.end() ? 0 : counted->second;
  };
  DropBad(invocation, *all);
  if (invocation.sort == kSortByHits) {
    std::stable_sort(all->begin(), all->end(), [&](const Found& a, const Found& b) { return hits(a) > hits(b); });
  } else {
    std::stable_sort(all->begin(), all->end(), column->before);
  }
  if (invocation.json) {
    std::vector<std::string> items;
    for (const Found& found : *all) items.push_back(Summary(invocation, found).Number("hits", hits(found)).ToString());
    *invocation.out << JsonArray(items) << "\n";
    return kDone;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Found& found : *all) {
    const Entry& entry = *found.entry;
    rows.push_back({found.key().substr(0, kShortKey), entry.isa, entry.key.emitter,
                    Size(static_cast<int64_t>(entry.code.size())), Milliseconds(entry.jit_nanoseconds),
                    absl::StrCat(hits(found)), Ago(time(nullptr) - found.file.last_use),
                    entry.key.build == invocation.build ? "this" : "other", entry.key.signature});
  }
  PrintTable(*invocation.out,
             {{"KEY"},
              {"ISA"},
              {"EMITTER"},
              {"CODE", true},
              {"JIT", true},
              {"HITS", true},
              {"USED", true},
              {"BUILD"},
              {"SIGNATURE"}},
             rows, invocation.bold);
  return kDone;
}

int Show(const Invocation& invocation) {
  const absl::StatusOr<std::vector<Found>> selected = Select(invocation, invocation.arguments);
  if (!selected.ok()) return Fail(invocation, selected.status());
  std::vector<std::string> items;
  for (const Found& found : *selected) {
    if (!found.entry.ok()) return Fail(invocation, found.entry.status());
    if (invocation.json) {
      items.push_back(ShowJson(invocation, found));
    } else {
      if (&found != selected->data()) *invocation.out << "\n";
      ShowText(invocation, found);
    }
  }
  if (invocation.json) *invocation.out << JsonArray(items) << "\n";
  return kDone;
}

int Stats(const Invocation& invocation) {
  const absl::StatusOr<std::vector<Found>> all = ReadAll(invocation);
  if (!all.ok()) return Fail(invocation, all.status());
  int64_t processes = 0, hits = 0;
  const absl::StatusOr<cache::Usage> usage = UsageOf(invocation, processes);
  if (!usage.ok()) return Fail(invocation, usage.status());
  for (const auto& [key, count] : usage->hits) hits += count;
  int64_t entries = 0, bad = 0, this_build = 0, code_bytes = 0, file_bytes = 0, jit_nanoseconds = 0;
  std::map<std::string, int64_t> emitters, isas;
  for (const Found& found : *all) {
    file_bytes += found.file.bytes;
    if (!found.entry.ok()) {
      ++bad;
      continue;
    }
    ++entries;
    this_build += found.entry->key.build == invocation.build ? 1 : 0;
    code_bytes += static_cast<int64_t>(found.entry->code.size());
    jit_nanoseconds += found.entry->jit_nanoseconds;
    ++emitters[found.entry->key.emitter];
    ++isas[found.entry->isa];
  }
  if (invocation.json) {
    const auto counts = [](const std::map<std::string, int64_t>& of) {
      JsonObject object;
      for (const auto& [name, count] : of) object.Number(name, count);
      return object.ToString();
    };
    *invocation.out << JsonObject()
                           .Text("folder", invocation.path)
                           .Number("entries", entries)
                           .Number("damaged", bad)
                           .Number("this_build", this_build)
                           .Number("code_bytes", code_bytes)
                           .Number("file_bytes", file_bytes)
                           .Number("byte_budget", invocation.byte_budget)
                           .Seconds("jit_seconds", jit_nanoseconds)
                           .Number("processes", processes)
                           .Number("hits", hits)
                           .Raw("emitters", counts(emitters))
                           .Raw("isas", counts(isas))
                           .ToString()
                    << "\n";
    return kDone;
  }
  const auto counts = [](const std::map<std::string, int64_t>& of) {
    std::string text;
    for (const auto& [name, count] : of) absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", count);
    return text.empty() ? std::string("none") : text;
  };
  *invocation.out << "folder:        " << invocation.path << "\nentries:       " << entries << " (" << this_build
                  << " of this build)\ndamaged:       " << bad << "\nsize:          " << Size(file_bytes) << " of "
                  << Size(invocation.byte_budget) << ", " << Size(code_bytes) << " of it code"
                  << "\nhits:          " << hits << " by the last " << processes << " processes"
                  << "\ntime to make:  " << Milliseconds(jit_nanoseconds) << "\nemitters:      " << counts(emitters)
                  << "\nISA levels:    " << counts(isas) << "\n";
  return kDone;
}

int Rejections(const Invocation& invocation) {
  int64_t processes = 0;
  const absl::StatusOr<cache::Usage> usage = UsageOf(invocation, processes);
  if (!usage.ok()) return Fail(invocation, usage.status());
  std::vector<std::string> items;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [reason, rejection] : usage->rejections) {
    items.push_back(JsonObject()
                        .Text("reason", reason)
                        .Number("count", rejection.count)
                        .Text("example", rejection.example)
                        .ToString());
    rows.push_back({absl::StrCat(rejection.count), reason, rejection.example});
  }
  if (invocation.json) {
    *invocation.out << JsonArray(items) << "\n";
  } else {
    PrintTable(*invocation.out, {{"COUNT", true}, {"REASON"}, {"EXAMPLE"}}, rows, invocation.bold);
  }
  return kDone;
}

}  // namespace clikart::cli
