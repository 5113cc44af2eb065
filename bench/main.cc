// clikart-bench: the figures of this machine, each beside the limit that it is measured against.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"
#include "clikart/codegen/target.h"
#include "layers.h"

namespace clikart::bench {
namespace {

struct Subject {
  const char* name;
  void (*measure)(const Context&);
};

constexpr Subject kSubjects[] = {
    {"throughput", &MeasureThroughput},
    {"integer", &MeasureInteger},
    {"codes", &MeasureCodes},
    {"row_int8", &MeasureRowInt8},
    {"quantize", &MeasureQuantize},
    {"depthwise", &MeasureDepthwise},
    {"epilogues", &MeasureEpilogues},
    {"overhead", &MeasureCallOverhead},
    {"emission", &MeasureEmission},
    {"cache", &MeasureCache},
    {"llvm", &MeasureLlvm},
};

int Usage(const char* complaint) {
  std::fprintf(stderr, "%s\nusage: clikart-bench [--json] [--check] [--quick] [subject...]\n  subjects:", complaint);
  for (const Subject& subject : kSubjects) std::fprintf(stderr, " %s", subject.name);
  std::fprintf(stderr,
               "\n  --json   print a JSON array instead of a table\n"
               "  --check  exit with status 1 where a goal was missed\n"
               "  --quick  fewer repetitions\n");
  return 2;
}

int Main(int argc, char** argv) {
  bool json = false;
  bool check = false;
  int rounds = 9;
  std::vector<const Subject*> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--check") {
      check = true;
    } else if (argument == "--quick") {
      rounds = 3;
    } else {
      const Subject* found = nullptr;
      for (const Subject& subject : kSubjects) {
        if (argument == subject.name) found = &subject;
      }
      if (found == nullptr) return Usage(("clikart-bench: unknown argument \"" + argument + "\"").c_str());
      chosen.push_back(found);
    }
  }
  if (chosen.empty()) {
    for (const Subject& subject : kSubjects) chosen.push_back(&subject);
  }
  const codegen::Target target = UsedTarget();
  if (!target.Has(codegen::Feature::kAvx2)) {
    std::fprintf(stderr,
                 "clikart-bench: the limits are measured with AVX2 and FMA, which this machine does not offer\n");
    return 1;
  }
  const Limits limits(target.Has(codegen::Feature::kAvx512) ? 512 : 256);
  Report report(json);
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  const Context context{.limits = limits, .report = report, .rounds = rounds, .max_threads = cpus < 2 ? 1 : 2};
  for (const Subject* subject : chosen) subject->measure(context);
  report.Finish();
  return check && !report.AllMet() ? 1 : 0;
}

}  // namespace
}  // namespace clikart::bench

int main(int argc, char** argv) { return clikart::bench::Main(argc, argv); }
