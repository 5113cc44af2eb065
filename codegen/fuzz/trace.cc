#include "trace.h"

#include <ucontext.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/codegen/driver.h"
#include "clikart/ir/activation.h"
#include "panel_driver.h"
#include "quant_testing.h"

namespace clikart::codegen {
namespace {

// What the signal handler and the stepping driver see; one kernel is stepped through at a time.
const EmittedKernel* stepped = nullptr;
const std::byte* code_begin = nullptr;
int64_t* counts = nullptr;

void OnStep(int, siginfo_t*, void* context) {
  const auto at = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  const uintptr_t offset = at - reinterpret_cast<uintptr_t>(code_begin);
  if (offset < stepped->code.size()) ++counts[offset];
}

// The trap flag of RFLAGS; what lies below the stack pointer may be in use.
void SetTrapFlag() {
  __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
                       : "cc", "memory");
}
void ClearTrapFlag() {
  __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
                       : "cc", "memory");
}

void FindCode(const KernelImage& kernel) {
  for (int i = 0; i < kMaxEntries; ++i) {
    if (kernel.entries[i] == nullptr) continue;
    code_begin = static_cast<const std::byte*>(kernel.entries[i]) - stepped->entry_offsets[i];
  }
}

// Take the places of the kernel's driver and of what prepares its rows.
void RunStepped(const KernelImage& kernel, const TileArgs& args) {
  FindCode(kernel);
  SetTrapFlag();
  stepped->run(kernel, args);
  ClearTrapFlag();
}
void PrepareStepped(const KernelImage& kernel, const PrepareArgs& args) {
  FindCode(kernel);
  SetTrapFlag();
  PrepareRows(kernel, args);
  ClearTrapFlag();
}

// The same where codes are decoded: each register tile for one scheme. What another scheme adds is in a tile of each
// form.
std::vector<int64_t> RowCountsOfCodes(const ir::KernelSpec& spec, const Schedule& schedule) {
  if (spec.x != ir::DType::kFloat32 || spec.scheme->bits != 4 || !spec.scheme->HasZeroPoint()) {
    return {1, schedule.few_rows + 1};
  }
  std::vector<int64_t> all;
  for (int64_t rows = 1; rows <= schedule.decoded_block; ++rows) all.push_back(rows);
  std::set<int64_t> blocks;  // of widened panels, by their rows
  for (int64_t rows = schedule.few_rows + 1; rows <= schedule.few_rows + schedule.row_block; ++rows) {
    const int64_t count = (rows + schedule.row_block - 1) / schedule.row_block;
    const bool larger = blocks.insert(RowsOfBlock(rows, count, 0)).second;
    const bool smaller = blocks.insert(RowsOfBlock(rows, count, count - 1)).second;
    if (larger || smaller) all.push_back(rows);
  }
  return all;
}

// Each register tile as the only one, and so many rows that weights are widened; what an activation, a table of
// offsets or another type of x adds does not depend on the rows.
std::vector<int64_t> RowCounts(const ir::KernelSpec& spec, const Schedule& schedule) {
  if (spec.contraction == ir::Contraction::kWeightOnly) return RowCountsOfCodes(spec, schedule);
  if (spec.contraction == ir::Contraction::kRowInt8) {
    // Where matrix tiles take many rows, one row tile and two.
    return schedule.matrix_rows > 0 ? std::vector<int64_t>{2, schedule.few_rows + 1, schedule.matrix_rows + 1}
                                    : std::vector<int64_t>{2};
  }
  if (spec.activation != ir::Activation::kNone || spec.access != ir::Access::kDense || spec.x != spec.w) {
    return {2};
  }
  std::vector<int64_t> all;
  // Beyond 16 rows a register tile is two tile registers, and its rows are a number rather than code.
  for (int64_t rows = 1; rows <= std::min<int64_t>(schedule.row_block, 17); ++rows) all.push_back(rows);
  constexpr int64_t kMany = 1000;  // beyond, weights are never widened
  if (schedule.few_rows > 0 && schedule.few_rows < kMany) all.push_back(schedule.few_rows + 1);
  return all;
}

}  // namespace

std::string Trace::ToString() const {
  std::string text = absl::StrCat("trace\t", c.ToString(), "\t", absl::Hex(code_hash), "\t");
  int32_t last = 0;
  for (const auto& [offset, count] : hits) {
    absl::StrAppend(&text, absl::Hex(offset - last), ":", absl::Hex(count), " ");
    last = offset;
  }
  return text;
}

absl::StatusOr<Trace> Trace::Parse(std::string_view line) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(line), '\t');
  if (parts.size() != 4 || parts[0] != "trace") return absl::InvalidArgumentError("no trace");
  Trace trace;
  const absl::StatusOr<Case> c = Case::Parse(parts[1]);
  if (!c.ok()) return c.status();
  trace.c = *c;
  bool good = absl::SimpleHexAtoi(parts[2], &trace.code_hash);
  int32_t offset = 0;
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(parts[3], ' ', absl::SkipEmpty()))) {
    const std::vector<std::string> numbers = absl::StrSplit(pair, ':');
    int32_t step = 0;
    int64_t count = 0;
    good = good && numbers.size() == 2 && absl::SimpleHexAtoi(numbers[0], &step) &&
           absl::SimpleHexAtoi(numbers[1], &count);
    offset += step;
    trace.hits[offset] = count;
  }
  if (!good) return absl::InvalidArgumentError("numbers of a trace");
  return trace;
}

uint64_t HashOf(const EmittedKernel& kernel) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : kernel.code) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::vector<Case> TraceCases(const Emitter& emitter, const Target& target) {
  std::vector<Case> cases;
  const auto add = [&](const ir::KernelSpec& spec) {
    for (const ir::KernelSpec& variant : Variants(spec, target)) {
      Case c;
      c.spec = variant;
      c.tile_rows = c.tile_panels = 1 << 20;
      c.emitter = std::string(emitter.name());
      c.target = target;
      cases.push_back(c);
    }
  };
  ir::KernelSpec base;
  base.n = 74;
  base.k = 11;
  constexpr ir::DType kFloats[] = {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16};
  for (const ir::DType x : kFloats) {
    for (const ir::DType w : kFloats) {
      ir::KernelSpec spec = base;
      spec.x = spec.y = x;
      spec.w = w;
      add(spec);
      spec.access = ir::Access::kIndirect;
      spec.taps = 2;
      spec.bias = ir::BiasKind::kFloat32;
      if (x == w) add(spec);
      spec.contraction = ir::Contraction::kDepthwise;
      spec.k = 1;
      add(spec);
    }
  }
  for (const ir::Activation activation : ir::AllActivations()) {
    ir::KernelSpec spec = base;
    spec.k = 3;
    spec.activation = activation;
    add(spec);
  }
  for (const ir::DType x : {ir::DType::kInt8, ir::DType::kUInt8}) {
    for (const bool requantize : {false, true}) {
      ir::KernelSpec spec = base;
      spec.contraction = ir::Contraction::kInteger;
      spec.x = x;
      spec.w = ir::DType::kInt8;
      spec.requantize = requantize;
      if (requantize) spec.y = x;
      add(spec);
    }
  }
  for (const char* const scheme : {"int8", "int8_g5_asym", "int4_g8", "int4_g7_asym", "int4_g8_min", "int2_g5",
                                   "nf4_g8", "fp8_e4m3", "fp8_e5m2_g4", "mxfp4", "nvfp4"}) {
    for (const ir::InputOrder order : {ir::InputOrder::kNatural, ir::InputOrder::kSorted}) {
      ir::KernelSpec spec = SchemeSpec(ir::Contraction::kWeightOnly, scheme, 55, base.k);
      spec.order = order;
      if (order != ir::InputOrder::kNatural) spec.x = ir::DType::kBFloat16;
      add(spec);
    }
  }
  // Groups that tiles take, the last one short.
  for (const char* const scheme : {"int8_g32", "int4_g36_asym", "int2_g32_min"}) {
    add(SchemeSpec(ir::Contraction::kRowInt8, scheme, 40, 75));
  }
  return cases;
}

Trace Step(const Case& c, const EmittedKernel& kernel) {
  std::vector<int64_t> counted(kernel.code.size());
  stepped = &kernel;
  counts = counted.data();
  struct sigaction before;
  struct sigaction action = {};
  action.sa_sigaction = OnStep;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &before);
  EmittedKernel stepping = kernel;
  stepping.run = RunStepped;
  for (const int64_t rows : RowCounts(c.spec, kernel.schedule)) {
    if (IsQuantized(c.spec)) {
      RunQuant(RandomQuantProblem(c.spec, rows, PartRows(c), c.seed), {.kernel = &stepping, .prepare = PrepareStepped});
    } else {
      const Problem problem = RandomProblem(c.spec, rows, c.values, c.seed);
      RunGuarded(LoadedKernel(stepping), problem, c.edge, std::max<int64_t>(1, rows), c.tile_panels);
    }
  }
  sigaction(SIGTRAP, &before, nullptr);
  Trace trace;
  trace.c = c;
  trace.code_hash = HashOf(kernel);
  for (size_t at = 0; at < counted.size(); ++at) {
    if (counted[at] > 0) trace.hits[static_cast<int32_t>(at)] = counted[at];
  }
  return trace;
}

}  // namespace clikart::codegen
