#include "check.h"

#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fault.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

Verdict Wrong(std::string text) { return {Verdict::Kind::kWrong, std::move(text)}; }

// The fastest oracle that is not the code under test.
EmittedKernel Oracle(const ir::KernelSpec& spec) {
  const Target target = Detect(CpuidRecord::Host(IsaLevel::kAvx2), IsaLevel::kAvx2);
  return std::get<EmittedKernel>(FindEmitter("portable")->Emit(spec, target));
}

std::string At(const ir::KernelSpec& spec, int64_t index) {
  return absl::StrCat("row ", index / spec.outputs(), " column ", index % spec.outputs());
}

// Runs one kernel on a problem; what stopped it goes to `fault`.
std::vector<std::byte> Run(const EmittedKernel& kernel, const Problem& problem, const Case& c, std::string& fault) {
  std::vector<std::byte> got;
  std::string stray;
  const LoadedKernel loaded(kernel);
  fault = CatchFault([&] { got = RunGuarded(loaded, problem, c.edge, c.tile_rows, c.tile_panels, &stray); });
  if (fault.empty()) fault = stray;
  return got;
}

// The sums of a kernel that has some of its own, judged by rule 5.
Verdict OwnSums(const Case& c, const Emitter& emitter, const Problem& problem, std::vector<float>& sums) {
  Problem plain = problem;
  plain.spec.activation = ir::Activation::kNone;
  plain.spec.bias = ir::BiasKind::kNone;
  plain.spec.y = ir::DType::kFloat32;
  plain.bias.clear();
  auto emitted = emitter.Emit(plain.spec, c.target);
  if (const auto* rejection = std::get_if<Rejection>(&emitted)) return Wrong("refuses the sums: " + rejection->detail);
  std::string fault;
  const std::vector<std::byte> bytes = Run(std::get<EmittedKernel>(emitted), plain, c, fault);
  if (!fault.empty()) return Wrong("in the sums: " + fault);
  sums.resize(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(sums.data(), bytes.data(), bytes.size());
  const int64_t at = FirstBeyondBound(plain, sums);
  if (at < 0) return {};
  return Wrong(absl::StrCat("sum of ", At(plain.spec, at), " is ", sums[at], ", out of bounds"));
}

Verdict CheckFloat(const Case& c, const Emitter& emitter, const EmittedKernel& kernel) {
  const Problem problem = RandomProblem(c.spec, c.rows, c.values, c.seed);
  std::string fault;
  const std::vector<std::byte> got = Run(kernel, problem, c, fault);
  if (!fault.empty()) return Wrong(fault);
  std::vector<std::byte> wanted;
  if (ir::HasOwnSums(c.spec.product)) {
    std::vector<float> sums;
    if (Verdict verdict = OwnSums(c, emitter, problem, sums); verdict.kind != Verdict::Kind::kGood) return verdict;
    wanted = Finish(problem, sums);
  } else if (c.emitter == "portable") {
    wanted = Reference(problem);
  } else {
    wanted = RunGuarded(LoadedKernel(Oracle(c.spec)), problem, c.edge, std::max<int64_t>(1, c.rows), 1 << 20);
  }
  const int64_t at = FirstDifference(c.spec.y, got, wanted);
  if (at < 0) return {};
  const auto size = static_cast<int64_t>(ir::SizeOf(c.spec.y));
  return Wrong(absl::StrCat(At(c.spec, at), " is ", LoadElement(c.spec.y, got.data() + at * size), ", expected ",
                            LoadElement(c.spec.y, wanted.data() + at * size)));
}

std::vector<float> Run(const EmittedKernel& kernel, const QuantProblem& problem, const Case& c, std::string& fault) {
  std::vector<float> got;
  std::string stray;
  fault = CatchFault([&] {
    got = RunQuant(problem, {.kernel = &kernel,
                             .edge = c.edge,
                             .tile_rows = c.tile_rows,
                             .tile_panels = c.tile_panels,
                             .stray_write = &stray});
  });
  if (fault.empty()) fault = stray;
  return got;
}

// The same of quantized weights.
Verdict OwnSums(const Case& c, const Emitter& emitter, const QuantProblem& problem, std::vector<float>& sums) {
  QuantProblem plain = problem;
  plain.spec.activation = ir::Activation::kNone;
  plain.spec.bias = ir::BiasKind::kNone;
  plain.spec.y = ir::DType::kFloat32;
  plain.bias.clear();
  auto emitted = emitter.Emit(plain.spec, c.target);
  if (const auto* rejection = std::get_if<Rejection>(&emitted)) return Wrong("refuses the sums: " + rejection->detail);
  std::string fault;
  sums = Run(std::get<EmittedKernel>(emitted), plain, c, fault);
  if (!fault.empty()) return Wrong("in the sums: " + fault);
  const int64_t at = FirstBeyondBound(plain, sums);
  if (at < 0) return {};
  return Wrong(absl::StrCat("sum of ", At(plain.spec, at), " is ", sums[static_cast<size_t>(at)], ", out of bounds"));
}

Verdict CheckQuantized(const Case& c, const Emitter& emitter, const EmittedKernel& kernel) {
  QuantProblem problem = RandomQuantProblem(c.spec, c.rows, PartRows(c), c.seed);
  if (c.values == Values::kExtreme) MakeExtreme(problem, c.seed);
  std::string fault;
  const std::vector<float> got = Run(kernel, problem, c, fault);
  if (!fault.empty()) return Wrong(fault);
  std::vector<float> wanted;
  if (ir::HasOwnSums(c.spec.product)) {
    std::vector<float> sums;
    if (Verdict verdict = OwnSums(c, emitter, problem, sums); verdict.kind != Verdict::Kind::kGood) return verdict;
    wanted = Finish(problem, sums);
  } else if (c.emitter == "portable") {
    wanted = WordByWord(problem);
  } else {
    const EmittedKernel oracle = Oracle(c.spec);
    wanted = RunQuant(problem, {.kernel = &oracle});
  }
  if (got.size() != wanted.size()) return Wrong("another number of results");
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(wanted[i]);
    if (same || (std::isnan(got[i]) && std::isnan(wanted[i]))) continue;
    return Wrong(absl::StrCat(At(c.spec, static_cast<int64_t>(i)), " is ", got[i], ", expected ", wanted[i]));
  }
  return {};
}

}  // namespace

Verdict Check(const Case& c, const Emitter& emitter) {
  auto emitted = emitter.Emit(c.spec, c.target);
  if (const auto* rejection = std::get_if<Rejection>(&emitted)) return {Verdict::Kind::kRejected, rejection->detail};
  const auto& kernel = std::get<EmittedKernel>(emitted);
  return IsQuantized(c.spec) ? CheckQuantized(c, emitter, kernel) : CheckFloat(c, emitter, kernel);
}

Case Shrink(Case c, const Emitter& emitter) {
  // Each step makes something smaller; the limit is for kernels that take long to emit.
  for (int tries = 0; tries < 500;) {
    bool shrunk = false;
    for (const Case& other : Simpler(c)) {
      ++tries;
      if (Check(other, emitter).kind != Verdict::Kind::kWrong) continue;
      c = other;
      shrunk = true;
      break;
    }
    if (!shrunk) break;
  }
  return c;
}

}  // namespace clikart::codegen
