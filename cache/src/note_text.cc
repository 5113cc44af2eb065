// The text of an entry's note. Written and read by one list of lines, so that neither can leave one out.
#include <charconv>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "clikart/cache/object_file.h"

namespace clikart::cache {
namespace {

constexpr std::string_view kFormat = "1";
// A kernel has some twenty entry points and fewer loops.
constexpr int64_t kMaxEntryPoint = 255;

absl::Status Bad(const std::string& what) { return absl::DataLossError(what); }

// Digits as they would be printed, nothing else.
bool ParseNumber(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = !text.empty() && (text[0] != '0' || text.size() == 1);
  return error == std::errc() && end == text.data() + text.size() && plain && value >= 0;
}

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') return false;
  }
  return !text.empty();
}

class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  // Whether the next line is `name`'s; its value then, and the reader moves on.
  bool Next(std::string_view name, std::string_view& value) {
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return false;
    const std::string_view line = rest_.substr(0, end);
    if (line.size() <= name.size() + 2 || !line.starts_with(name) || line.substr(name.size(), 2) != ": ") return false;
    value = line.substr(name.size() + 2);
    rest_.remove_prefix(end + 1);
    return true;
  }

  void Text(std::string_view name, std::string& out) {
    std::string_view value;
    if (!Next(name, value)) return Miss(name);
    out = value;
  }

  void Number(std::string_view name, int64_t& out) {
    std::string_view value;
    if (!Next(name, value) || !ParseNumber(value, out)) Miss(name);
  }

  void Miss(std::string_view name) {
    if (missing_.empty()) missing_ = name;
  }
  bool AtEnd() const { return rest_.empty(); }
  const std::string& missing() const { return missing_; }

 private:
  std::string_view rest_;
  std::string missing_;
};

// The word before the first blank, which it removes with the blank.
std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

bool ParseEntryPoint(std::string_view text, EntryPoint& entry_point) {
  int64_t number = 0;
  if (!ParseNumber(TakeWord(text), number) || number > kMaxEntryPoint) return false;
  entry_point.number = static_cast<int>(number);
  return ParseNumber(text, entry_point.offset);
}

bool ParseLoop(std::string_view text, Loop& loop) {
  for (int64_t* field : {&loop.begin, &loop.end, &loop.multiplies}) {
    if (!ParseNumber(TakeWord(text), *field)) return false;
  }
  loop.name = text;
  return true;
}

}  // namespace

std::string NoteText(const Entry& entry) {
  const Key& key = entry.key;
  std::string text =
      absl::StrCat("format: ", std::string(kFormat), "\nsignature: ", key.signature, "\nfeatures: ", key.features,
                   "\nemitter: ", key.emitter, "\nbuild: ", key.build, "\nisa: ", entry.isa, "\ndriver: ", entry.driver,
                   "\nschedule: ", entry.schedule, "\n");
  for (const EntryPoint& entry_point : entry.entry_points) {
    absl::StrAppend(&text, "entry: ", entry_point.number, " ", entry_point.offset, "\n");
  }
  for (const Loop& loop : entry.loops) {
    absl::StrAppend(&text, "loop: ", loop.begin, " ", loop.end, " ", loop.multiplies, " ", loop.name, "\n");
  }
  absl::StrAppend(&text, "jit_nanoseconds: ", entry.jit_nanoseconds, "\ninstruction_bytes: ", entry.instruction_bytes,
                  "\ncode_bytes: ", entry.code.size(), "\n");
  return text;
}

absl::StatusOr<Entry> ParseNoteText(std::string_view text, int64_t& code_bytes) {
  Entry entry;
  LineReader reader(text);
  std::string format;
  reader.Text("format", format);
  if (format != kFormat) return Bad(absl::StrCat("its note is not of format ", std::string(kFormat)));
  reader.Text("signature", entry.key.signature);
  reader.Text("features", entry.key.features);
  reader.Text("emitter", entry.key.emitter);
  reader.Text("build", entry.key.build);
  reader.Text("isa", entry.isa);
  reader.Text("driver", entry.driver);
  reader.Text("schedule", entry.schedule);
  std::string_view value;
  while (reader.Next("entry", value)) {
    if (!ParseEntryPoint(value, entry.entry_points.emplace_back())) reader.Miss("entry");
  }
  while (reader.Next("loop", value)) {
    if (!ParseLoop(value, entry.loops.emplace_back())) reader.Miss("loop");
  }
  reader.Number("jit_nanoseconds", entry.jit_nanoseconds);
  reader.Number("instruction_bytes", entry.instruction_bytes);
  reader.Number("code_bytes", code_bytes);
  if (!reader.missing().empty()) return Bad(absl::StrCat("its note lacks a valid line \"", reader.missing(), "\""));
  if (!reader.AtEnd()) return Bad("its note has lines too many");
  if (absl::Status status = Validate(entry, code_bytes); !status.ok()) return Bad(std::string(status.message()));
  return entry;
}

absl::Status Validate(const Entry& entry, int64_t code_bytes) {
  const Key& key = entry.key;
  for (const std::string* text :
       {&key.signature, &key.features, &key.emitter, &key.build, &entry.isa, &entry.driver, &entry.schedule}) {
    if (!IsPlain(*text)) return absl::InvalidArgumentError("a text is empty or holds control characters");
  }
  if (code_bytes <= 0 || code_bytes > kMaxFileBytes) return absl::InvalidArgumentError("no code, or too much");
  if (entry.instruction_bytes <= 0 || entry.instruction_bytes > code_bytes || entry.jit_nanoseconds < 0) {
    return absl::InvalidArgumentError("the instructions do not lie in the code");
  }
  int64_t last = -1;
  for (const EntryPoint& entry_point : entry.entry_points) {
    const bool inside = entry_point.offset >= 0 && entry_point.offset < entry.instruction_bytes;
    if (!inside || entry_point.number <= last || entry_point.number > kMaxEntryPoint) {
      return absl::InvalidArgumentError("an entry point is out of order or outside of the instructions");
    }
    last = entry_point.number;
  }
  if (last < 0) return absl::InvalidArgumentError("no entry point");
  for (const Loop& loop : entry.loops) {
    const bool inside = loop.begin >= 0 && loop.begin < loop.end && loop.end <= entry.instruction_bytes;
    if (!inside || loop.multiplies < 0 || !IsPlain(loop.name)) {
      return absl::InvalidArgumentError("a loop lies outside of the instructions");
    }
  }
  return absl::OkStatus();
}

}  // namespace clikart::cache
