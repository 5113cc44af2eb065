// clikart-fuzz: random specs and data through every emitter and target that this CPU can run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "check.h"
#include "trace.h"

namespace clikart::codegen {
namespace {

constexpr char kUsage[] =
    "clikart-fuzz [--seconds N | --cases N] [--seed N] [--emitters A,B] [--products N]   random kernels for a while\n"
    "clikart-fuzz --replay \"CASE\"   one case again; a failing run prints the line\n"
    "clikart-fuzz --trace           every kind of kernel once, an instruction at a time, for clikart-coverage\n"
    "clikart-fuzz --targets         what this CPU can run\n"
    "\n"
    "Compares every emitter with the portable one, bit by bit, or by the bound of rule 5, with every buffer\n"
    "between guard pages. Failing cases are made small first. CLIKART_TEST_LEVELS restricts the targets.\n"
    "--products: multiplications of a case, 2000000 unless told; less where an emulator runs them.\n"
    "Ends with 1 where a case was wrong, with 2 where it cannot do what it was asked.\n";

struct Options {
  double seconds = 10;
  int64_t cases = std::numeric_limits<int64_t>::max();
  uint64_t seed = 1;
  Effort effort;
  std::vector<const Emitter*> emitters;
};

struct Tally {
  int64_t kernels = 0, cases = 0, rejected = 0;
};

class Clock {
 public:
  double Seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void Report(const Case& c, const Emitter& emitter, const Verdict& verdict) {
  const Case small = Shrink(c, emitter);
  const Verdict again = Check(small, emitter);
  std::printf("WRONG: %s\nreplay: clikart-fuzz --replay \"%s\"\n",
              (again.kind == Verdict::Kind::kWrong ? again.text : verdict.text).c_str(), small.ToString().c_str());
  std::fflush(stdout);
}

// Emitting takes long where LLVM does it, so such a kernel meets more data and is drawn less often.
int Runs(const Emitter& emitter) { return emitter.name() == "llvm" ? 12 : 3; }

int Fuzz(const Options& options) {
  std::mt19937_64 random(options.seed);
  const std::span<const Target> targets = RunnableTargets();
  std::map<std::pair<std::string, std::string>, Tally> tallies;
  constexpr int kMostFailures = 5;
  int failures = 0;
  int64_t cases = 0;
  for (const Clock clock; clock.Seconds() < options.seconds && cases < options.cases && failures < kMostFailures;) {
    const auto any = [&](size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); };
    const Emitter& emitter = *options.emitters[any(options.emitters.size())];
    if (emitter.name() == "llvm" && any(8) != 0) continue;
    Case c;
    c.target = targets[any(targets.size())];
    c.emitter = std::string(emitter.name());
    c.spec = RandomSpec(c.target, options.effort, random);
    if (const absl::Status status = c.spec.Verify(); !status.ok()) {
      std::printf("made no spec: %s\n", std::string(status.message()).c_str());
      return 2;
    }
    Tally& tally = tallies[{c.emitter, std::string(Name(c.target.level()))}];
    ++tally.kernels;
    for (int run = 0; run < Runs(emitter); ++run) {
      c = WithRandomRun(c, options.effort, random);
      const Verdict verdict = Check(c, emitter);
      if (verdict.kind == Verdict::Kind::kRejected) {
        ++tally.rejected;
        break;
      }
      ++tally.cases;
      ++cases;
      if (verdict.kind == Verdict::Kind::kGood) continue;
      Report(c, emitter, verdict);
      ++failures;
      break;
    }
  }
  std::printf("%-10s %-12s %9s %9s %9s\n", "emitter", "level", "kernels", "rejected", "cases");
  for (const auto& [key, tally] : tallies) {
    std::printf("%-10s %-12s %9ld %9ld %9ld\n", key.first.c_str(), key.second.c_str(), tally.kernels, tally.rejected,
                tally.cases);
  }
  std::printf("seed %lu: %ld cases, %d wrong\n", options.seed, cases, failures);
  if (cases == 0) std::printf("no emitter served anything\n");
  return failures > 0 ? 1 : cases > 0 ? 0 : 2;
}

int Replay(std::string_view text) {
  const absl::StatusOr<Case> c = Case::Parse(text);
  if (!c.ok()) {
    std::fprintf(stderr, "clikart-fuzz: %s\n", std::string(c.status().message()).c_str());
    return 2;
  }
  if (!Detect(CpuidRecord::Host(), kWidestIsa).Includes(c->target)) {
    std::fprintf(stderr, "clikart-fuzz: this CPU lacks some of: %s\n", c->target.ToString().c_str());
    return 2;
  }
  const Verdict verdict = Check(*c, *FindEmitter(c->emitter));
  constexpr const char* kNames[] = {"good", "rejected", "WRONG"};
  std::printf("%s%s%s\n", kNames[static_cast<int>(verdict.kind)], verdict.text.empty() ? "" : ": ",
              verdict.text.c_str());
  return verdict.kind == Verdict::Kind::kWrong ? 1 : 0;
}

int ShowTargets() {
  for (const Target& target : RunnableTargets()) std::printf("%s\n", target.ToString().c_str());
  return 0;
}

// A kernel that several targets share is stepped through once.
int ShowTraces(const Options& options) {
  std::set<uint64_t> seen;
  for (const Emitter* emitter : options.emitters) {
    for (const Target& target : RunnableTargets()) {
      for (const Case& c : TraceCases(*emitter, target)) {
        const auto emitted = emitter->Emit(c.spec, target);
        const auto* const kernel = std::get_if<EmittedKernel>(&emitted);
        if (kernel == nullptr || kernel->code.empty() || !seen.insert(HashOf(*kernel)).second) continue;
        std::printf("%s\n", Step(c, *kernel).ToString().c_str());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  options.emitters.assign(Emitters().begin(), Emitters().end());
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--targets") return ShowTargets();
    if (name == "--trace") return ShowTraces(options);
    const std::string value = i + 1 < argc ? argv[++i] : "";
    bool good = false;
    if (name == "--replay") return Replay(value);
    if (name == "--seconds") good = absl::SimpleAtod(value, &options.seconds);
    if (name == "--cases") {
      good = absl::SimpleAtoi(value, &options.cases);
      options.seconds = std::numeric_limits<double>::infinity();
    }
    if (name == "--seed") good = absl::SimpleAtoi(value, &options.seed);
    if (name == "--products") good = absl::SimpleAtoi(value, &options.effort.products) && options.effort.products > 0;
    if (name == "--emitters") {
      options.emitters.clear();
      for (const std::string& emitter : std::vector<std::string>(absl::StrSplit(value, ','))) {
        options.emitters.push_back(FindEmitter(emitter));
      }
      good = std::find(options.emitters.begin(), options.emitters.end(), nullptr) == options.emitters.end();
    }
    if (good) continue;
    std::fputs(kUsage, stderr);
    return 2;
  }
  return Fuzz(options);
}

}  // namespace
}  // namespace clikart::codegen

int main(int argc, char** argv) { return clikart::codegen::Main(argc, argv); }
