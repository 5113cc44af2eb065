// The ELF side of an entry. Written by hand: the shape is fixed, and the reader never follows a header; it
// takes the note and the code from where the writer puts them.
#include "clikart/cache/object_file.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "sha256.h"

namespace clikart::cache {
namespace {

constexpr char kNoteName[8] = "clikart";                    // the owner of both notes, padded as notes are
constexpr uint32_t kTextNote = 0x101, kDigestNote = 0x102;  // none that readelf has a name for
constexpr size_t kNoteHead = sizeof(Elf64_Nhdr) + sizeof(kNoteName);
constexpr size_t kNoteAt = sizeof(Elf64_Ehdr);
constexpr size_t kDigestBytes = kNoteHead + std::tuple_size_v<Digest>;
constexpr size_t kCodeAlignment = 64, kTableAlignment = 8, kNoteAlignment = 4;

// Numbers of the sections; their names lie in this order in the table of names.
enum Section : uint16_t { kNull, kText, kConstants, kNote, kSymbols, kSymbolNames, kSectionNames, kSha256, kSections };
constexpr std::string_view kSectionName[kSections] = {"",        ".text",   ".rodata",   ".note.clikart",
                                                      ".symtab", ".strtab", ".shstrtab", ".note.clikart.sha256"};

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Where the code lies, given the text before it: all that the reader has to know.
size_t CodeAt(size_t text_bytes) { return RoundUp(kNoteAt + kNoteHead + text_bytes, kCodeAlignment); }

class Writer {
 public:
  size_t at() const { return bytes_.size(); }
  void Align(size_t unit) { bytes_.resize(RoundUp(at(), unit)); }
  void Bytes(const void* data, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  void Note(uint32_t type, const void* data, size_t size) {
    const Elf64_Nhdr head = {sizeof(kNoteName), static_cast<Elf64_Word>(size), type};
    Bytes(&head, sizeof(head));
    Bytes(kNoteName, sizeof(kNoteName));
    Bytes(data, size);
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Entry points and loops under names that a disassembly shows.
struct Symbols {
  std::vector<Elf64_Sym> table{Elf64_Sym{}};
  std::string names = std::string(1, '\0');
  uint32_t locals = 1;

  void Add(const std::string& name, int type, int64_t begin, int64_t end) {
    Elf64_Sym symbol = {};
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(type == STT_FUNC ? STB_GLOBAL : STB_LOCAL, type));
    symbol.st_shndx = kText;
    symbol.st_value = static_cast<Elf64_Addr>(begin);
    symbol.st_size = static_cast<Elf64_Xword>(end - begin);
    table.push_back(symbol);
    names.append(name).append(1, '\0');
  }
};

void AddLoops(const Entry& entry, Symbols& symbols) {
  for (const Loop& loop : entry.loops) {
    std::string name = "loop_" + loop.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    symbols.Add(name, STT_NOTYPE, loop.begin, loop.end);
  }
  symbols.locals = static_cast<uint32_t>(symbols.table.size());
}

void AddEntryPoints(const Entry& entry, const std::string& prefix, Symbols& symbols) {
  for (const EntryPoint& entry_point : entry.entry_points) {
    int64_t end = entry.instruction_bytes;  // or the next entry point after it
    for (const EntryPoint& other : entry.entry_points) {
      if (other.offset > entry_point.offset) end = std::min(end, other.offset);
    }
    symbols.Add(prefix + "entry_" + std::to_string(entry_point.number), STT_FUNC, entry_point.offset, end);
  }
}

std::string SectionNames() {
  std::string names;
  for (const std::string_view name : kSectionName) names.append(name).append(1, '\0');
  return names;
}

Elf64_Word NameOffset(Section section) {
  size_t at = 0;
  for (int i = 0; i < section; ++i) at += kSectionName[i].size() + 1;
  return static_cast<Elf64_Word>(at);
}

Elf64_Shdr HeaderOf(Section section, uint32_t type, uint64_t flags, size_t at, size_t size, size_t alignment) {
  Elf64_Shdr header = {};
  header.sh_name = NameOffset(section);
  header.sh_type = type;
  header.sh_flags = flags;
  header.sh_offset = at;
  header.sh_size = size;
  header.sh_addralign = alignment;
  return header;
}

Elf64_Ehdr FileHeader(size_t section_headers_at) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = section_headers_at;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kSectionNames;
  return header;
}

absl::Status Bad(const char* what) { return absl::DataLossError(what); }

absl::StatusOr<std::vector<uint8_t>> Write(const Entry& entry, const Symbols& symbols, uint64_t address) {
  if (absl::Status status = Validate(entry, static_cast<int64_t>(entry.code.size())); !status.ok()) return status;
  const std::string text = NoteText(entry), section_names = SectionNames();
  const size_t instructions = static_cast<size_t>(entry.instruction_bytes);
  Elf64_Shdr headers[kSections] = {};
  Writer file;
  const auto section = [&](Section number, uint32_t type, uint64_t flags, size_t size, size_t alignment) {
    headers[number] = HeaderOf(number, type, flags, file.at(), size, alignment);
  };

  file.bytes().resize(kNoteAt);
  section(kNote, SHT_NOTE, 0, RoundUp(kNoteHead + text.size(), kNoteAlignment), kNoteAlignment);
  file.Note(kTextNote, text.data(), text.size());
  file.Align(kCodeAlignment);
  section(kText, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, instructions, kCodeAlignment);
  headers[kText].sh_addr = address;
  file.Bytes(entry.code.data(), instructions);
  // Behind the instructions, as they address it; the addresses let a disassembler see that.
  section(kConstants, SHT_PROGBITS, SHF_ALLOC, entry.code.size() - instructions, 1);
  headers[kConstants].sh_addr = address + instructions;
  file.Bytes(entry.code.data() + instructions, entry.code.size() - instructions);
  file.Align(kTableAlignment);
  section(kSymbols, SHT_SYMTAB, 0, symbols.table.size() * sizeof(Elf64_Sym), kTableAlignment);
  headers[kSymbols].sh_link = kSymbolNames;
  headers[kSymbols].sh_info = symbols.locals;
  headers[kSymbols].sh_entsize = sizeof(Elf64_Sym);
  file.Bytes(symbols.table.data(), symbols.table.size() * sizeof(Elf64_Sym));
  section(kSymbolNames, SHT_STRTAB, 0, symbols.names.size(), 1);
  file.Bytes(symbols.names.data(), symbols.names.size());
  section(kSectionNames, SHT_STRTAB, 0, section_names.size(), 1);
  file.Bytes(section_names.data(), section_names.size());
  file.Align(kTableAlignment);

  const size_t headers_at = file.at();
  headers[kSha256] = HeaderOf(kSha256, SHT_NOTE, 0, headers_at + sizeof(headers), kDigestBytes, kNoteAlignment);
  file.Bytes(headers, sizeof(headers));
  const Elf64_Ehdr file_header = FileHeader(headers_at);
  std::memcpy(file.bytes().data(), &file_header, sizeof(file_header));
  Digest digest{};
  file.Note(kDigestNote, digest.data(), digest.size());
  // Of everything before itself.
  digest = Sha256({file.bytes().data(), file.at() - digest.size()});
  std::copy(digest.begin(), digest.end(), file.bytes().end() - static_cast<ptrdiff_t>(digest.size()));
  if (file.at() > static_cast<size_t>(kMaxFileBytes)) return absl::InvalidArgumentError("the kernel is too large");
  return std::move(file.bytes());
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> Serialize(const Entry& entry) {
  Symbols symbols;
  AddLoops(entry, symbols);
  AddEntryPoints(entry, "", symbols);
  return Write(entry, symbols, 0);
}

absl::StatusOr<std::vector<uint8_t>> SerializeLoaded(const Entry& entry, const Placement& placement) {
  Symbols symbols;
  AddEntryPoints(entry, placement.prefix, symbols);
  return Write(entry, symbols, placement.address);
}

absl::StatusOr<Entry> Parse(std::span<const uint8_t> file) {
  constexpr size_t kDigest = std::tuple_size_v<Digest>;
  if (file.size() < CodeAt(0) + kDigestBytes) return Bad("it is too short");
  if (file.size() > static_cast<size_t>(kMaxFileBytes)) return Bad("it is too long");
  const std::span<const uint8_t> body = file.first(file.size() - kDigest);
  const Digest digest = Sha256(body);
  if (std::memcmp(digest.data(), file.data() + body.size(), kDigest) != 0) return Bad("its SHA-256 is another one");

  Elf64_Nhdr head;
  std::memcpy(&head, file.data() + kNoteAt, sizeof(head));
  const bool ours = head.n_namesz == sizeof(kNoteName) && head.n_type == kTextNote &&
                    std::memcmp(file.data() + kNoteAt + sizeof(head), kNoteName, sizeof(kNoteName)) == 0;
  if (!ours || head.n_descsz > body.size() || CodeAt(head.n_descsz) > body.size()) return Bad("it has no note of ours");
  const char* text = reinterpret_cast<const char*>(file.data() + kNoteAt + kNoteHead);
  int64_t code_bytes = 0;
  absl::StatusOr<Entry> entry = ParseNoteText({text, head.n_descsz}, code_bytes);
  if (!entry.ok()) return entry;
  const size_t code_at = CodeAt(head.n_descsz);
  if (static_cast<size_t>(code_bytes) > body.size() - code_at) return Bad("its code is cut off");
  const uint8_t* code = file.data() + code_at;
  entry->code.assign(code, code + code_bytes);
  return entry;
}

}  // namespace clikart::cache
