// One generated kernel as the cache folder keeps it: text that says what it is, and its bytes. Pure
// values: this floor knows no kernel, it keeps what the runtime tells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clikart::cache {

// What a kernel is found by. Two kernels are the same only where all of it is.
struct Key {
  std::string signature;  // the text of the spec
  std::string features;   // the text of the target
  std::string emitter;
  std::string build;  // identity of the code that emits and drives kernels, see build_identity.h

  // The digest of all fields, in hexadecimal digits; and with ".o".
  std::string Name() const;
  std::string FileName() const { return Name() + ".o"; }
  friend bool operator==(const Key&, const Key&) = default;
};

struct EntryPoint {
  int number = 0;
  int64_t offset = 0;
  friend bool operator==(const EntryPoint&, const EntryPoint&) = default;
};

// An inner loop of the code, for who reads it.
struct Loop {
  std::string name;
  int64_t begin = 0, end = 0;
  int64_t multiplies = 0;
  friend bool operator==(const Loop&, const Loop&) = default;
};

struct Entry {
  Key key;
  std::string isa;       // what the CPU must have, by name
  std::string driver;    // the compiled function that calls the entry points, by name
  std::string schedule;  // as the driver's side reads it
  std::vector<EntryPoint> entry_points;
  std::vector<Loop> loops;
  int64_t jit_nanoseconds = 0;
  int64_t instruction_bytes = 0;  // of `code`; constants follow
  std::vector<uint8_t> code;
  friend bool operator==(const Entry&, const Entry&) = default;
};

}  // namespace clikart::cache
