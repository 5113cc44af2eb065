// A cache folder of a test's own, and commands on it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "clikart/ir/kernel_spec.h"
#include "command.h"

namespace clikart::cli {

namespace fs = std::filesystem;

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    std::string path = (fs::temp_directory_path() / "clikart-cli-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    place_ = path;
  }
  ~CliTest() override {
    std::error_code ignored;
    fs::remove_all(place_, ignored);
  }

  static cache::Entry EntryNumber(int64_t n) {
    ir::KernelSpec spec;
    spec.n = n;
    spec.k = 8;
    spec.activation = ir::Activation::kGelu;
    cache::Entry entry;
    entry.key = {spec.ToString(), "avx2: sse42 avx2", n % 2 == 0 ? "llvm" : "xbyak", n < 3 ? "this" : "that"};
    entry.isa = "avx2";
    entry.driver = "panels";
    entry.schedule = "few_rows=0 row_block=6";
    entry.entry_points = {{0, 0}};
    entry.loops = {{"micro 6x1", 0, 8, 12}};
    entry.jit_nanoseconds = 1000 * n;
    entry.code.assign(static_cast<size_t>(100 * n), 0xc3);
    entry.instruction_bytes = 50;
    return entry;
  }
  void Fill(int64_t entries) {
    cache::Folder folder({.path = path()});
    for (int64_t n = 1; n <= entries; ++n) {
      const cache::Entry entry = EntryNumber(n);
      ASSERT_TRUE(folder.Save({&entry, 1}).ok());
    }
  }
  static std::string KeyOf(int64_t n) {
    const std::string name = EntryNumber(n).key.FileName();
    return name.substr(0, name.size() - 2);
  }

  std::string path() const { return place_ / "cache"; }
  int Do(std::vector<std::string> arguments, bool json = false) {
    Invocation invocation = base_;
    invocation.path = path();
    invocation.byte_budget = 1 << 20;
    invocation.build = "this";
    invocation.json = json;
    invocation.arguments = std::move(arguments);
    std::ostringstream out, err;
    invocation.out = &out;
    invocation.err = &err;
    const int code = cli::Run(invocation);
    out_ = out.str();
    err_ = err.str();
    return code;
  }

  fs::path place_;
  Invocation base_;
  std::string out_, err_;
};

}  // namespace clikart::cli
