#include "clikart/cache/object_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "cache_testing.h"
#include "sha256.h"

namespace clikart::cache {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As somebody who can compute a digest would damage a file.
void Seal(std::vector<uint8_t>& file) {
  const Digest digest = Sha256({file.data(), file.size() - 32});
  std::copy(digest.begin(), digest.end(), file.end() - 32);
}

std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  for (int c; (c = fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << output;
  return output;
}

TEST(Sha256Test, KnownDigests) {
  const std::string abc = "abc";
  EXPECT_EQ(Hex(Sha256({reinterpret_cast<const uint8_t*>(abc.data()), abc.size()})),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(KeyTest, EveryFieldMakesAnotherName) {
  const Key key = SampleEntry(1).key;
  std::vector<Key> keys(5, key);
  keys[1].signature += "0";
  keys[2].features = "avx2";
  keys[3].emitter = "llvm";
  keys[4].build += "0";
  for (const Key& other : keys) {
    EXPECT_EQ(other.FileName().size(), 66u);
    EXPECT_EQ(other == key, other.FileName() == key.FileName());
  }
}

TEST(ObjectFileTest, ReadsBackWhatWasWritten) {
  Entry entry = SampleEntry(7);
  EXPECT_EQ(*Parse(*Serialize(entry)), entry);
  entry.loops.clear();
  entry.code.resize(static_cast<size_t>(entry.instruction_bytes));  // no constants
  entry.entry_points = {{31, 0}};
  EXPECT_EQ(*Parse(*Serialize(entry)), entry);
  entry.code.assign(100000, 0x90);
  entry.instruction_bytes = 99999;
  EXPECT_EQ(*Parse(*Serialize(entry)), entry);
}

TEST(ObjectFileTest, LoadedObjectsHaveAddressesAndFunctions) {
  const Entry entry = SampleEntry(7);
  const std::vector<uint8_t> object = *SerializeLoaded(entry, {0x7f0000001000, "kernel:"});
  const std::string path = ::testing::TempDir() + "loaded.o";
  FILE* const file = fopen(path.c_str(), "wb");
  fwrite(object.data(), 1, object.size(), file);
  fclose(file);
  const std::string symbols = OutputOf("readelf -sW " + path), sections = OutputOf("readelf -SW " + path);
  for (const EntryPoint& entry_point : entry.entry_points) {
    EXPECT_THAT(symbols, HasSubstr("kernel:entry_" + std::to_string(entry_point.number)));
  }
  EXPECT_THAT(symbols, Not(HasSubstr("loop_")));
  EXPECT_THAT(sections, HasSubstr("PROGBITS        00007f0000001000"));
  remove(path.c_str());
}

TEST(ObjectFileTest, RefusesWhatDoesNotHoldTogether) {
  const std::vector<void (*)(Entry&)> damages = {
      [](Entry& e) { e.key.signature += "\nemitter: other"; },
      [](Entry& e) { e.key.build.clear(); },
      [](Entry& e) { e.schedule = "\x01"; },
      [](Entry& e) { e.code.clear(); },
      [](Entry& e) { e.instruction_bytes = 0; },
      [](Entry& e) { e.instruction_bytes = 15; },
      [](Entry& e) { e.entry_points[1].offset = 6; },
      [](Entry& e) { e.entry_points[1].offset = -1; },
      [](Entry& e) { e.entry_points[1].number = 0; },
      [](Entry& e) { e.entry_points[1].number = 256; },
      [](Entry& e) { e.entry_points.clear(); },
      [](Entry& e) { e.loops[0].end = 7; },
      [](Entry& e) { e.loops[0].end = 0; },
      [](Entry& e) { e.loops[0].multiplies = -1; },
      [](Entry& e) { e.loops[0].name.clear(); },
      [](Entry& e) { e.jit_nanoseconds = -1; },
      [](Entry& e) { e.code.resize(kMaxFileBytes); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    Entry entry = SampleEntry(1);
    damages[i](entry);
    EXPECT_EQ(Serialize(entry).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(ObjectFileTest, EveryFlippedBitIsFound) {
  const std::vector<uint8_t> good = *Serialize(SampleEntry(1));
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= static_cast<uint8_t>(1 << i % 8);
    ASSERT_EQ(Parse(bad).status().code(), absl::StatusCode::kDataLoss) << i;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(Parse({good.data(), size}).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(Parse(longer).ok());
}

// Whatever passes the digest is read with the same care: an entry that holds together, or none.
TEST(ObjectFileTest, SealedDamageIsReadSafely) {
  const std::vector<uint8_t> good = *Serialize(SampleEntry(1));
  const auto check = [](std::vector<uint8_t> file) {
    Seal(file);
    const auto entry = Parse(file);
    if (entry.ok()) {
      EXPECT_TRUE(Validate(*entry, static_cast<int64_t>(entry->code.size())).ok());
    }
  };
  for (size_t i = 0; i < good.size() - 32; ++i) {
    for (const int value : {0x00, 0x01, 0x30, 0x39, 0x20, 0x0a, 0x7f, 0xff}) {
      std::vector<uint8_t> bad = good;
      bad[i] = static_cast<uint8_t>(value);
      check(std::move(bad));
    }
  }
  for (size_t size = 32; size < good.size(); ++size) check({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
  std::vector<uint8_t> huge_note = good;
  for (size_t i = 68; i < 72; ++i) huge_note.at(i) = 0xff;
  check(huge_note);
}

TEST(ObjectFileTest, BinutilsReadIt) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "kernel.o";
  const std::vector<uint8_t> file = *Serialize(SampleEntry(0x1234));
  WriteFile(path, file);
  EXPECT_THAT(OutputOf("objdump -d -M intel " + path),
              AllOf(HasSubstr("elf64-x86-64"), HasSubstr("<entry_0>:"), HasSubstr("mov    eax,0x1234"),
                    HasSubstr("<entry_3>:"), HasSubstr("ret"), Not(HasSubstr("3f 3f"))));
  EXPECT_THAT(OutputOf("readelf -a -W " + path),
              AllOf(HasSubstr("REL (Relocatable file)"), HasSubstr("loop_micro_6x1_packed"), HasSubstr("clikart"),
                    Not(HasSubstr("Warning")), Not(HasSubstr("Error"))));
  EXPECT_THAT(OutputOf("readelf -p .note.clikart " + path), HasSubstr("signature: float dense n=4660"));
}

}  // namespace
}  // namespace clikart::cache
