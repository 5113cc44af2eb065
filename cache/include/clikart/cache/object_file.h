// An entry as an ELF object that objdump, readelf, gdb and perf open. docs/cache.md describes the format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clikart/cache/entry.h"

namespace clikart::cache {

// No kernel comes near it; a file beyond it is not read.
inline constexpr int64_t kMaxFileBytes = 16 << 20;

// InvalidArgument where the entry does not hold together (an entry point outside the instructions, a line
// break in a text).
absl::StatusOr<std::vector<uint8_t>> Serialize(const Entry& entry);

// Where code lies in this process, and what its symbols' names begin with.
struct Placement {
  uint64_t address = 0;
  std::string prefix;
};

// The same for a debugger: sections have the addresses of the code in memory, and symbols are functions alone,
// as a debugger takes the start of the nearest one for the start of a frame. Not for Parse.
absl::StatusOr<std::vector<uint8_t>> SerializeLoaded(const Entry& entry, const Placement& placement);

// DataLoss where the bytes are not exactly what Serialize wrote. The digest is compared before anything
// else is read, and whatever is read is checked all the same.
absl::StatusOr<Entry> Parse(std::span<const uint8_t> file);

// The note: one "name: value" a line. Its parser takes what the writer wrote and nothing else; `code` of
// the entry is left empty and its size is given in `code_bytes`.
std::string NoteText(const Entry& entry);
absl::StatusOr<Entry> ParseNoteText(std::string_view text, int64_t& code_bytes);

// Entry points and loops lie inside the instructions, the instructions inside the code, and no text is
// empty or holds a control character.
absl::Status Validate(const Entry& entry, int64_t code_bytes);

}  // namespace clikart::cache
