// clikart-mca: how the inner loops of kernels use a CPU that need not be at hand, by LLVM's model of it.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "clikart/analysis/kernel_loops.h"
#include "clikart/codegen/emitter.h"
#include "mca_cases.h"
#include "mca_table.h"

namespace clikart::bench {
namespace {

constexpr char kUsage[] = R"(usage: clikart-mca [option...] [kernel signature...]
Without a signature: a default set, with the goals of its loops.
  --emitter NAME  whose kernels (default: xbyak)
  --level NAME    the instruction set of the kernels (default: the default set's, or all that the CPU has)
  --cpu NAME      a CPU as LLVM calls it; may be repeated (default:)";
constexpr char kMoreUsage[] = R"()
  --all-loops     also show the loops for few rows and remainders, of staging and of the epilogue
  --json          print a JSON array instead of a table
  --check         exit with status 1 where a goal was missed
)";

constexpr std::string_view kDefaultEmitter = "xbyak";

struct Options {
  const codegen::Emitter* emitter = codegen::FindEmitter(kDefaultEmitter);
  std::optional<codegen::IsaLevel> level;
  std::vector<std::string> cpus;
  std::vector<ir::KernelSpec> specs;
  bool all_loops = false;
  bool json = false;
  bool check = false;
  bool help = false;
};

// Takes one argument and what follows it.
absl::Status TakeArgument(int& at, int argc, char** argv, Options& options) {
  const std::string_view argument = argv[at];
  const auto value = [&]() -> std::string { return at + 1 < argc ? argv[++at] : ""; };
  if (argument == "--help") {
    options.help = true;
  } else if (argument == "--all-loops") {
    options.all_loops = true;
  } else if (argument == "--json") {
    options.json = true;
  } else if (argument == "--check") {
    options.check = true;
  } else if (argument == "--cpu") {
    options.cpus.push_back(value());
  } else if (argument == "--level") {
    const auto level = codegen::ParseIsaLevel(value());
    if (!level.ok()) return level.status();
    options.level = *level;
  } else if (argument == "--emitter") {
    const std::string name = value();
    options.emitter = codegen::FindEmitter(name);
    if (options.emitter == nullptr) return absl::InvalidArgumentError(absl::StrCat("no emitter \"", name, "\""));
  } else {
    const auto spec = ir::KernelSpec::Parse(argument);
    if (!spec.ok()) return spec.status();
    options.specs.push_back(*spec);
  }
  return absl::OkStatus();
}

// The main loops of the kernel that such a CPU gets, or all of them.
absl::Status AddRows(const McaCase& wanted, const std::string& cpu, const Options& options, std::vector<McaRow>& rows) {
  const codegen::Target target = analysis::TargetOfCpu(cpu, wanted.level);
  ir::KernelSpec spec = wanted.spec;
  if (options.specs.empty()) {
    // The default set is for CPUs that have the level.
    if (target.level() != wanted.level) return absl::OkStatus();
    SuitTarget(spec, target);
  }
  auto emitted = options.emitter->Emit(spec, target);
  if (const auto* rejection = std::get_if<codegen::Rejection>(&emitted)) {
    // The default set is what xbyak serves.
    if (options.specs.empty() && options.emitter->name() != kDefaultEmitter) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(spec.ToString(), " for ", cpu, ": ", rejection->detail));
  }
  const auto& kernel = std::get<codegen::EmittedKernel>(emitted);
  auto loops = analysis::LoopsOf(kernel);
  if (!loops.ok()) return loops.status();
  for (analysis::KernelLoop& loop : *loops) {
    if (!loop.main && !options.all_loops) continue;
    const McaGoals goals = loop.main ? wanted.goals : McaGoals();
    auto prediction = analysis::Predict(analysis::CodeOf(kernel, loop), cpu);
    rows.push_back({.kernel = spec.ToString(),
                    .isa = std::string(codegen::Name(kernel.isa)),
                    .cpu = cpu,
                    .loop = std::move(loop),
                    .prediction = std::move(prediction),
                    .goals = goals});
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    if (const absl::Status status = TakeArgument(at, argc, argv, options); !status.ok()) {
      std::fprintf(stderr, "clikart-mca: %s (--help lists the options)\n", std::string(status.message()).c_str());
      return 2;
    }
  }
  if (options.help) {
    std::fputs(kUsage, stdout);
    for (const std::string_view cpu : analysis::KnownCpus()) std::printf(" %s", std::string(cpu).c_str());
    std::fputs(kMoreUsage, stdout);
    return 0;
  }
  if (options.cpus.empty()) options.cpus.assign(analysis::KnownCpus().begin(), analysis::KnownCpus().end());
  std::vector<McaCase> cases;
  for (const ir::KernelSpec& spec : options.specs) {
    cases.push_back({.spec = spec, .level = options.level.value_or(codegen::kWidestIsa), .goals = {}});
  }
  if (options.specs.empty()) cases = McaCases();

  std::vector<McaRow> rows;
  for (const McaCase& wanted : cases) {
    for (const std::string& cpu : options.cpus) {
      if (options.level.has_value() && wanted.level != *options.level) continue;
      if (const absl::Status status = AddRows(wanted, cpu, options, rows); !status.ok()) {
        std::fprintf(stderr, "clikart-mca: %s\n", std::string(status.message()).c_str());
        return 2;
      }
    }
  }
  (options.json ? PrintJson : PrintTable)(rows);
  const bool missed = std::any_of(rows.begin(), rows.end(), [](const McaRow& row) { return !row.Met(); });
  return options.check && missed ? 1 : 0;
}

}  // namespace
}  // namespace clikart::bench

int main(int argc, char** argv) { return clikart::bench::Main(argc, argv); }
