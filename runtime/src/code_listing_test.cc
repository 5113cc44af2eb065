#include "code_listing.h"

#include <dirent.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "clikart/codegen/driver.h"
#include "fork_testing.h"
#include "jitdump.h"

extern "C" {
struct jit_code_entry {
  jit_code_entry *next, *previous;
  const char* symfile;
  uint64_t symfile_bytes;
};
extern struct {
  uint32_t version, action;
  jit_code_entry *relevant, *first;
} __jit_debug_descriptor;
}

namespace clikart {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;

codegen::EmittedKernel Kernel(size_t bytes) {
  codegen::EmittedKernel kernel;
  kernel.spec.n = 16;
  kernel.spec.k = 4;
  kernel.emitter = "xbyak";
  kernel.isa = codegen::IsaLevel::kAvx2;
  kernel.code.assign(bytes, 0x90);
  kernel.instruction_bytes = static_cast<int64_t>(bytes) - 4;
  kernel.entry_offsets.fill(-1);
  kernel.entry_offsets[2] = 0;
  kernel.entry_offsets[5] = 8;
  kernel.run = codegen::Drivers()[0].run;
  return kernel;
}

std::string Read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <typename T>
T At(const std::string& bytes, size_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct Record {
  std::string name, code;
  uint64_t address = 0;
};

// As perf reads it: a header of 40 bytes, then records of id, size, time.
std::vector<Record> ReadJitdump(const fs::path& path, pid_t pid) {
  const std::string dump = Read(path);
  EXPECT_EQ(At<uint32_t>(dump, 0), 0x4A695444u);  // in this machine's order of bytes
  EXPECT_EQ(At<uint32_t>(dump, 4), 1u);
  EXPECT_EQ(At<uint32_t>(dump, 8), 40u);
  EXPECT_EQ(At<uint32_t>(dump, 12), static_cast<uint32_t>(EM_X86_64));
  EXPECT_EQ(At<uint32_t>(dump, 20), static_cast<uint32_t>(pid));
  std::vector<Record> records;
  uint64_t time = At<uint64_t>(dump, 24);
  for (size_t at = 40; at < dump.size();) {
    EXPECT_EQ(At<uint32_t>(dump, at), 0u);  // JIT_CODE_LOAD
    const size_t end = at + At<uint32_t>(dump, at + 4);
    EXPECT_GE(At<uint64_t>(dump, at + 8), time);
    time = At<uint64_t>(dump, at + 8);
    EXPECT_EQ(At<uint32_t>(dump, at + 16), static_cast<uint32_t>(pid));
    EXPECT_EQ(At<uint64_t>(dump, at + 24), At<uint64_t>(dump, at + 32));
    EXPECT_EQ(At<uint64_t>(dump, at + 48), records.size());
    Record record;
    record.address = At<uint64_t>(dump, at + 32);
    record.name = dump.c_str() + at + 56;
    record.code = dump.substr(at + 56 + record.name.size() + 1, At<uint64_t>(dump, at + 40));
    EXPECT_EQ(at + 56 + record.name.size() + 1 + record.code.size(), end);
    records.push_back(record);
    at = end;
  }
  return records;
}

std::vector<fs::path> Dumps(const fs::path& folder) {
  std::vector<fs::path> dumps;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) dumps.push_back(entry.path());
  }
  return dumps;
}

class CodeListingTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::path(::testing::TempDir()) / ("code_listing_" + std::to_string(getpid()));
};

TEST_F(CodeListingTest, PerfMap) {
  const codegen::EmittedKernel kernel = Kernel(64);
  const fs::path path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  fs::remove(path);
  EXPECT_EQ(ListCode({.perf_map = true}, "a kernel", kernel, kernel.code.data()), nullptr);
  std::stringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>(kernel.code.data());
  EXPECT_EQ(Read(path), address.str() + " 40 a kernel\n");
  fs::remove(path);
}

// In children: the dump belongs to a process.
TEST_F(CodeListingTest, JitdumpHoldsTheCode) {
  EXPECT_EQ(ExitCodeOfChild([&] {
              const codegen::EmittedKernel first = Kernel(64), second = Kernel(100);
              const CodeListing listing{.jitdump = true, .folder = folder_.string()};
              (void)ListCode(listing, "first", first, first.code.data());
              (void)ListCode(listing, "second one", second, second.code.data());
              const std::vector<fs::path> dumps = Dumps(folder_);
              EXPECT_EQ(dumps.size(), 1u);
              EXPECT_EQ(dumps[0].filename(), "jit-" + std::to_string(getpid()) + ".dump");
              struct stat folder{};
              stat(dumps[0].parent_path().c_str(), &folder);
              EXPECT_EQ(folder.st_mode & 0777, 0700u);
              const std::vector<Record> records = ReadJitdump(dumps[0], getpid());
              EXPECT_EQ(records.size(), 2u);
              EXPECT_EQ(records[0].name, "first");
              EXPECT_EQ(records[0].code, std::string(60, '\x90'));
              EXPECT_EQ(records[1].name, "second one");
              EXPECT_EQ(records[1].address, reinterpret_cast<uintptr_t>(second.code.data()));
              // What `perf record` sees of the file: an executable mapping of it.
              EXPECT_NE(Read("/proc/self/maps").find(dumps[0].string()), std::string::npos);
              // A child's records are not among its parent's.
              const int child = ExitCodeOfChild([&] {
                (void)ListCode(listing, "third", first, first.code.data());
                for (const fs::path& dump : Dumps(folder_)) {
                  if (dump.filename() == "jit-" + std::to_string(getpid()) + ".dump") {
                    return ReadJitdump(dump, getpid()).size() == 1 ? 0 : 1;
                  }
                }
                return 2;
              });
              EXPECT_EQ(child, 0);
              EXPECT_EQ(ReadJitdump(dumps[0], getpid()).size(), 2u);
              return ::testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(CodeListingTest, ManyThreadsWriteWholeRecords) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  EXPECT_EQ(ExitCodeOfChild([&] {
              const CodeListing listing{.jitdump = true, .folder = folder_.string()};
              const codegen::EmittedKernel kernel = Kernel(1000);
              std::vector<std::thread> threads;
              for (int t = 0; t < 8; ++t) {
                threads.emplace_back([&] {
                  for (int i = 0; i < 50; ++i) (void)ListCode(listing, "k", kernel, kernel.code.data());
                });
              }
              for (std::thread& thread : threads) thread.join();
              return Dumps(folder_).size() == 1 && ReadJitdump(Dumps(folder_)[0], getpid()).size() == 400 ? 0 : 1;
            }),
            0);
}

TEST_F(CodeListingTest, NoFolderIsOneWarning) {
  EXPECT_EQ(ExitCodeOfChild([&] {
              const codegen::EmittedKernel kernel = Kernel(64);
              const CodeListing listing{.jitdump = true, .folder = (folder_ / "missing").string()};
              ::testing::internal::CaptureStderr();
              for (int i = 0; i < 3; ++i) (void)ListCode(listing, "k", kernel, kernel.code.data());
              const std::string told = ::testing::internal::GetCapturedStderr();
              EXPECT_THAT(told, ::testing::HasSubstr("CLIKART_PERF_DIR"));
              EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
              return ::testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

// Name to address, of all objects that a debugger would see.
std::vector<std::pair<std::string, uint64_t>> SymbolsForGdb() {
  std::vector<std::pair<std::string, uint64_t>> symbols;
  for (const jit_code_entry* listed = __jit_debug_descriptor.first; listed != nullptr; listed = listed->next) {
    const std::string object(listed->symfile, listed->symfile_bytes);
    const auto header = At<Elf64_Ehdr>(object, 0);
    const auto section = [&](size_t i) { return At<Elf64_Shdr>(object, header.e_shoff + i * sizeof(Elf64_Shdr)); };
    for (size_t i = 0; i < header.e_shnum; ++i) {
      if (section(i).sh_type != SHT_SYMTAB) continue;
      for (size_t at = sizeof(Elf64_Sym); at < section(i).sh_size; at += sizeof(Elf64_Sym)) {
        const auto symbol = At<Elf64_Sym>(object, section(i).sh_offset + at);
        symbols.emplace_back(object.c_str() + section(section(i).sh_link).sh_offset + symbol.st_name,
                             section(symbol.st_shndx).sh_addr + symbol.st_value);
      }
    }
  }
  return symbols;
}

TEST_F(CodeListingTest, GdbSeesWhatIsAlive) {
  const codegen::EmittedKernel kernel = Kernel(64);
  const CodeListing listing{.gdb = true};
  const uint64_t first_at = 0x10000, second_at = 0x20000;
  auto first = ListCode(listing, "a", kernel, reinterpret_cast<const uint8_t*>(first_at));
  auto second = ListCode(listing, "b", kernel, reinterpret_cast<const uint8_t*>(second_at));
  auto third = ListCode(listing, "c", kernel, reinterpret_cast<const uint8_t*>(second_at));
  EXPECT_EQ(__jit_debug_descriptor.version, 1u);
  EXPECT_EQ(__jit_debug_descriptor.action, 0u);
  third.reset();
  EXPECT_THAT(SymbolsForGdb(), ElementsAre(Pair("b:entry_2", second_at), Pair("b:entry_5", second_at + 8),
                                           Pair("a:entry_2", first_at), Pair("a:entry_5", first_at + 8)));
  first.reset();
  EXPECT_THAT(SymbolsForGdb(), ElementsAre(Pair("b:entry_2", second_at), Pair("b:entry_5", second_at + 8)));
  second.reset();
  EXPECT_EQ(__jit_debug_descriptor.first, nullptr);
}

}  // namespace
}  // namespace clikart
