// disasm, mca.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis_object.h"
#include "command.h"
#include "json.h"
#include "table.h"

namespace clikart::cli {
namespace {

using cache::Entry;

constexpr int64_t kBytesShown = 11;  // of an instruction; the longest in kernels

bool Holds(const CodeLoop& loop, int64_t offset) { return loop.begin <= offset && offset < loop.end; }

const CodeLoop* LoopAt(const Disassembly& code, int64_t offset) {
  const auto found =
      std::find_if(code.loops.begin(), code.loops.end(), [&](const CodeLoop& loop) { return Holds(loop, offset); });
  return found == code.loops.end() ? nullptr : &*found;
}

// Entry points that begin there.
std::vector<int64_t> EntriesAt(const Entry& entry, int64_t offset) {
  std::vector<int64_t> numbers;
  for (const cache::EntryPoint& point : entry.entry_points) {
    if (point.offset == offset) numbers.push_back(point.number);
  }
  return numbers;
}

std::string Hex(const Entry& entry, const CodeLine& line) {
  std::string text;
  for (int64_t i = 0; i < line.bytes; ++i) {
    absl::StrAppendFormat(&text, "%02x", static_cast<int>(entry.code[static_cast<size_t>(line.offset + i)]));
  }
  return text;
}

std::string Counts(const CodeLoop& loop) {
  std::string text = absl::StrCat(loop.instructions, " instructions");
  const auto add = [&](int count, const char* what) {
    if (count > 0) absl::StrAppend(&text, ", ", count, " ", what);
  };
  add(loop.multiplies, "multiplications");
  add(loop.tile_products, "tile products");
  add(loop.tile_loads, "tile loads");
  add(loop.loads, "loads");
  add(loop.stores, "stores");
  add(loop.stack_accesses, "of the stack");
  return text;
}

void PrintCode(const Invocation& invocation, const Found& found, const Disassembly& code) {
  const Entry& entry = *found.entry;
  std::ostream& out = *invocation.out;
  const auto heading = [&](const std::string& text) {
    out << (invocation.bold ? absl::StrCat("\033[1m", text, "\033[0m\n") : absl::StrCat(text, "\n"));
  };
  heading(absl::StrCat(found.key(), " ", entry.key.emitter, " ", entry.isa));
  out << entry.key.signature << "\n";
  for (const CodeLine& line : code.lines) {
    for (const int64_t number : EntriesAt(entry, line.offset)) heading(absl::StrCat("\nentry_", number, ":"));
    const CodeLoop* const loop = LoopAt(code, line.offset);
    if (loop != nullptr && loop->begin == line.offset) {
      heading(absl::StrCat(loop->main ? "  main loop " : "  loop ", loop->name, ": ", Counts(*loop)));
    }
    const char mark = loop == nullptr ? ' ' : loop->main ? '*' : '|';
    const int padding = static_cast<int>(2 * std::max<int64_t>(0, kBytesShown - line.bytes));
    out << absl::StrFormat("%c %6x  %s%*s  %s", mark, line.offset, Hex(entry, line), padding, "", line.text);
    if (line.jumps_to) out << absl::StrFormat("  -> %x", *line.jumps_to);
    out << "\n";
  }
}

JsonObject LoopJson(const CodeLoop& loop) {
  JsonObject object;
  object.Text("name", loop.name)
      .Number("begin", loop.begin)
      .Number("end", loop.end)
      .Flag("main", loop.main)
      .Number("instructions", loop.instructions)
      .Number("multiplies", loop.multiplies)
      .Number("tile_products", loop.tile_products)
      .Number("tile_loads", loop.tile_loads)
      .Number("loads", loop.loads)
      .Number("stores", loop.stores)
      .Number("stack_accesses", loop.stack_accesses);
  return object;
}

std::string CodeJson(const Found& found, const Disassembly& code) {
  const Entry& entry = *found.entry;
  std::vector<std::string> loops, lines;
  for (const CodeLoop& loop : code.loops) loops.push_back(LoopJson(loop).ToString());
  for (const CodeLine& line : code.lines) {
    JsonObject object;
    object.Number("offset", line.offset).Text("bytes", Hex(entry, line)).Text("text", line.text);
    if (line.jumps_to) object.Number("jumps_to", *line.jumps_to);
    lines.push_back(object.ToString());
  }
  std::vector<std::string> points;
  for (const cache::EntryPoint& point : entry.entry_points) {
    points.push_back(JsonObject().Number("number", point.number).Number("offset", point.offset).ToString());
  }
  return JsonObject()
      .Text("key", found.key())
      .Text("signature", entry.key.signature)
      .Text("emitter", entry.key.emitter)
      .Text("isa", entry.isa)
      .Raw("entry_points", JsonArray(points))
      .Raw("loops", JsonArray(loops))
      .Raw("lines", JsonArray(lines))
      .ToString();
}

// Percent of the multiplications' limit that the loop reaches; nothing where it does not multiply.
std::string Share(const LoopPrediction& prediction) {
  return prediction.limit_cycles == 0 ? "" : absl::StrFormat("%.1f", 100 * prediction.limit_cycles / prediction.cycles);
}

std::string PredictionJson(const Found& found, const LoopPrediction& prediction) {
  JsonObject object;
  object.Text("key", found.key()).Text("cpu", prediction.cpu).Raw("loop", LoopJson(prediction.loop).ToString());
  if (!prediction.problem.empty()) return object.Text("problem", prediction.problem).ToString();
  const std::string share = Share(prediction);
  return object.Number("uops", prediction.uops)
      .Raw("cycles", absl::StrFormat("%.2f", prediction.cycles))
      .Raw("limit_cycles", absl::StrFormat("%.2f", prediction.limit_cycles))
      .Raw("share", share.empty() ? "null" : share)
      .Text("bottleneck", prediction.bottleneck)
      .ToString();
}

std::vector<std::string> PredictionRow(const LoopPrediction& prediction) {
  const CodeLoop& loop = prediction.loop;
  std::vector<std::string> row = {prediction.cpu, loop.name, absl::StrCat(loop.instructions),
                                  absl::StrCat(loop.multiplies + loop.tile_products)};
  if (!prediction.problem.empty()) {
    row.insert(row.end(), {"", "", "", "", prediction.problem});
  } else {
    const std::string share = Share(prediction);
    row.insert(row.end(), {absl::StrCat(prediction.uops), absl::StrFormat("%.2f", prediction.cycles),
                           absl::StrFormat("%.2f", prediction.limit_cycles), share.empty() ? "" : share + " %",
                           prediction.bottleneck});
  }
  return row;
}

// What both commands begin with.
struct Inspection {
  std::vector<Found> entries;  // whose keys are given, all of them good
  AnalysisObject llvm;
};

absl::StatusOr<Inspection> Begin(const Invocation& invocation) {
  absl::StatusOr<std::vector<Found>> selected = Select(invocation, invocation.arguments);
  if (!selected.ok()) return selected.status();
  for (const Found& found : *selected) {
    if (!found.entry.ok()) return found.entry.status();
  }
  const absl::StatusOr<AnalysisObject> llvm = AnalysisObject::Load(invocation.analysis_object);
  if (!llvm.ok()) return llvm.status();
  return Inspection{*std::move(selected), *llvm};
}

}  // namespace

int Disasm(const Invocation& invocation) {
  const absl::StatusOr<Inspection> inspection = Begin(invocation);
  if (!inspection.ok()) return Fail(invocation, inspection.status());
  std::vector<std::string> items;
  for (const Found& found : inspection->entries) {
    const absl::StatusOr<Disassembly> code = inspection->llvm.Disassemble(*found.entry);
    if (!code.ok()) return Fail(invocation, code.status());
    if (invocation.json) {
      items.push_back(CodeJson(found, *code));
    } else {
      PrintCode(invocation, found, *code);
    }
  }
  if (invocation.json) *invocation.out << JsonArray(items) << "\n";
  return kDone;
}

int Mca(const Invocation& invocation) {
  const absl::StatusOr<Inspection> inspection = Begin(invocation);
  if (!inspection.ok()) return Fail(invocation, inspection.status());
  std::vector<std::string> items;
  for (const Found& found : inspection->entries) {
    const auto predictions = inspection->llvm.Predict(*found.entry, invocation.cpu);
    if (!predictions.ok()) return Fail(invocation, predictions.status());
    std::vector<std::vector<std::string>> rows;
    for (const LoopPrediction& prediction : *predictions) {
      items.push_back(PredictionJson(found, prediction));
      rows.push_back(PredictionRow(prediction));
    }
    if (invocation.json) continue;
    *invocation.out << found.key() << " " << found.entry->key.emitter << " " << found.entry->isa << "\n"
                    << found.entry->key.signature << "\n";
    PrintTable(*invocation.out,
               {{"CPU"},
                {"MAIN LOOP"},
                {"INSTR", true},
                {"MULT", true},
                {"UOPS", true},
                {"CYCLES", true},
                {"LIMIT", true},
                {"SHARE", true},
                {"BOTTLENECK"}},
               rows, invocation.bold);
  }
  if (invocation.json) *invocation.out << JsonArray(items) << "\n";
  return kDone;
}

}  // namespace clikart::cli
