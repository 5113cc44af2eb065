// clikart-coverage: what the kernels of a list of traces consist of, and what of it was executed.
#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "clikart/analysis/disassembly.h"
#include "clikart/analysis/extensions.h"
#include "clikart/codegen/emitter.h"
#include "trace.h"

namespace clikart::analysis {
namespace {

constexpr char kUsage[] =
    "clikart-fuzz --trace > TRACES; clikart-coverage < TRACES\n"
    "\n"
    "For each x86 extension: how many different instructions of the traced kernels need it, how many of these were\n"
    "executed, and how often. Then the names of those that never were.\n";

struct Row {
  int64_t emitted = 0, executed = 0, times = 0;
  std::set<std::string> names;
};

struct Coverage {
  int64_t kernels = 0;
  std::map<Extension, Row> rows;
  std::map<std::string, bool> executed;  // by name: somewhere
};

// The kernel is emitted again: traces may come from a machine that had no disassembler.
absl::Status Add(const codegen::Trace& trace, Coverage& coverage) {
  const auto emitted = codegen::FindEmitter(trace.c.emitter)->Emit(trace.c.spec, trace.c.target);
  const auto* const kernel = std::get_if<codegen::EmittedKernel>(&emitted);
  if (kernel == nullptr || codegen::HashOf(*kernel) != trace.code_hash) {
    return absl::FailedPreconditionError(absl::StrCat("this build emits other code for ", trace.c.ToString()));
  }
  const std::span<const uint8_t> code(kernel->code.data(), static_cast<size_t>(kernel->instruction_bytes));
  const absl::StatusOr<std::vector<Line>> lines = Disassemble(code);
  if (!lines.ok()) return lines.status();
  ++coverage.kernels;
  size_t found = 0;
  for (const Line& line : *lines) {
    const auto hit = trace.hits.find(static_cast<int32_t>(line.offset));
    const int64_t times = hit == trace.hits.end() ? 0 : hit->second;
    found += times > 0 ? 1 : 0;
    const std::string name = line.text.substr(0, line.text.find(' '));
    coverage.executed[name] |= times > 0;
    const ExtensionSet extensions = ExtensionsOf(code.subspan(line.offset, line.bytes), line.text);
    for (int i = 0; i < kExtensionCount; ++i) {
      const auto extension = static_cast<Extension>(i);
      if (!extensions.Has(extension)) continue;
      Row& row = coverage.rows[extension];
      ++row.emitted;
      row.executed += times > 0 ? 1 : 0;
      row.times += times;
      if (times > 0) row.names.insert(name);
    }
  }
  if (found != trace.hits.size()) return absl::InternalError("executed where no instruction begins");
  return absl::OkStatus();
}

int Main() {
  Coverage coverage;
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.starts_with("trace\t")) continue;
    const absl::StatusOr<codegen::Trace> trace = codegen::Trace::Parse(line);
    const absl::Status status = trace.ok() ? Add(*trace, coverage) : trace.status();
    if (status.ok()) continue;
    std::fprintf(stderr, "clikart-coverage: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  if (coverage.kernels == 0) {
    std::fprintf(stderr, "clikart-coverage: no trace\n%s", kUsage);
    return 2;
  }
  std::printf("%ld kernels\n%-12s %9s %9s %12s  %s\n", coverage.kernels, "extension", "emitted", "executed", "times",
              "names");
  for (const auto& [extension, row] : coverage.rows) {
    std::printf("%-12s %9ld %9ld %12ld  %zu\n", std::string(Name(extension)).c_str(), row.emitted, row.executed,
                row.times, row.names.size());
  }
  std::string never;
  for (const auto& [name, executed] : coverage.executed) {
    if (!executed) absl::StrAppend(&never, " ", name);
  }
  std::printf("emitted, never executed:%s\n", never.empty() ? " none" : never.c_str());
  return 0;
}

}  // namespace
}  // namespace clikart::analysis

int main(int argc, char**) {
  if (argc > 1) {
    std::fputs(clikart::analysis::kUsage, stderr);
    return 2;
  }
  return clikart::analysis::Main();
}
