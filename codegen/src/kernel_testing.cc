#include "kernel_testing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/ir/panel_layout.h"
#include "code_tile_driver.h"
#include "gtest/gtest.h"
#include "row_int8_tile_driver.h"

namespace clikart::codegen {

namespace {

size_t RoundToPages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

namespace {

std::vector<Target> FindTargets() {
  const CpuidRecord cpuid = CpuidRecord::Host();
  std::vector<Target> targets;
  if (const char* const wanted = std::getenv("CLIKART_TEST_LEVELS")) {
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(wanted, ','))) {
      const absl::StatusOr<IsaLevel> level = ParseIsaLevel(name);
      if (!level.ok() || Detect(cpuid, *level).level() != *level) {
        std::fprintf(stderr, "CLIKART_TEST_LEVELS: \"%s\" is no level of this CPU\n", name.c_str());
        std::exit(2);
      }
      targets.push_back(Detect(cpuid, *level));
    }
    return targets;
  }
  for (const IsaLevel level : AllIsaLevels()) {
    const Target target = Detect(cpuid, level);
    // Below AVX512-VNNI, AVX-VNNI hides what integer kernels are on CPUs that have neither (Skylake-X).
    const Target without_vnni = {{Feature::kSse42, Feature::kAvx2, Feature::kAvx512}};
    if (level == IsaLevel::kAvx512 && target.Includes(without_vnni) && !(target == without_vnni)) {
      targets.push_back(without_vnni);
    }
    if (targets.empty() || !(targets.back() == target)) targets.push_back(target);
  }
  return targets;
}

// Matrix tiles take the groups of a spec that asks for them.
bool GroupsFit(const ir::KernelSpec& spec) {
  if (spec.product == ir::Product::kTileInt8) return GroupsSuitTiles(spec);
  if (spec.product == ir::Product::kFma || !spec.quantized_weights()) return true;
  return GroupsFillTiles(*spec.scheme, spec.depth());
}

}  // namespace

std::span<const Target> RunnableTargets() {
  static const std::vector<Target> targets = FindTargets();
  return targets;
}

std::vector<ir::KernelSpec> Variants(const ir::KernelSpec& spec, const Target& target) {
  struct Choice {
    ir::Product product;
    std::optional<Feature> feature;
  };
  constexpr Choice kChoices[] = {{ir::Product::kFma, std::nullopt},
                                 {ir::Product::kDotBf16, Feature::kAvx512Bf16},
                                 {ir::Product::kTileBf16, Feature::kAmxBf16},
                                 {ir::Product::kTileF16, Feature::kAmxFp16},
                                 {ir::Product::kTileInt8, Feature::kAmxInt8}};
  std::vector<ir::KernelSpec> variants;
  for (const Choice& choice : kChoices) {
    if (choice.feature && !target.Has(*choice.feature)) continue;
    for (const int interleave : {1, 2, 4, 8, 16}) {
      ir::KernelSpec variant = spec;
      variant.product = choice.product;
      variant.interleave = interleave;
      if (variant.Verify().ok() && GroupsFit(variant)) variants.push_back(variant);
    }
  }
  return variants;
}

std::vector<EmittedKernel> RunnableKernels(const Emitter& emitter, const ir::KernelSpec& spec) {
  std::vector<EmittedKernel> kernels;
  for (const Target& target : RunnableTargets()) {
    for (const ir::KernelSpec& variant : Variants(spec, target)) {
      if (variant.product != spec.product) continue;
      auto emitted = emitter.Emit(variant, target);
      if (const auto* rejection = std::get_if<Rejection>(&emitted)) {
        const bool not_built = CLIKART_BUILDS_LLVM == 0 && rejection->reason == RejectReason::kNoLlvm;
        EXPECT_TRUE(not_built || rejection->reason == RejectReason::kIsaTooOld)
            << rejection->detail << ": " << variant.ToString();
        continue;
      }
      auto& kernel = std::get<EmittedKernel>(emitted);
      const auto same = [&](const EmittedKernel& other) {
        return other.spec == kernel.spec && other.code == kernel.code && other.run == kernel.run &&
               other.schedule == kernel.schedule;
      };
      if (std::none_of(kernels.begin(), kernels.end(), same)) kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

GuardedBuffer::GuardedBuffer(size_t bytes, Edge edge) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inside = RoundToPages(bytes);
  mapped_ = inside + 2 * page;
  void* const mapping = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) std::abort();
  mapping_ = static_cast<std::byte*>(mapping);
  if (inside > 0 && mprotect(mapping_ + page, inside, PROT_READ | PROT_WRITE) != 0) std::abort();
  data_ = mapping_ + page + (edge == Edge::kEnd ? inside - bytes : 0);
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping_, mapped_); }

LoadedKernel::LoadedKernel(const EmittedKernel& kernel) {
  image_.spec = kernel.spec;
  image_.schedule = kernel.schedule;
  image_.run = kernel.run;
  if (kernel.code.empty()) return;
  mapped_ = RoundToPages(kernel.code.size());
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) std::abort();
  std::memcpy(mapping_, kernel.code.data(), kernel.code.size());
  if (mprotect(mapping_, mapped_, PROT_READ | PROT_EXEC) != 0) std::abort();
  for (int i = 0; i < kMaxEntries; ++i) {
    if (kernel.entry_offsets[i] >= 0) {
      image_.entries[i] = static_cast<const std::byte*>(mapping_) + kernel.entry_offsets[i];
    }
  }
}

LoadedKernel::~LoadedKernel() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

float LoadElement(ir::DType dtype, const std::byte* from) {
  if (dtype == ir::DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == ir::DType::kFloat16 ? ir::HalfToFloat(bits) : ir::BFloat16ToFloat(bits);
}

void StoreElement(ir::DType dtype, float value, std::byte* to) {
  if (dtype == ir::DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == ir::DType::kFloat16 ? ir::FloatToHalf(value) : ir::FloatToBFloat16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

namespace {

float Exact(ir::DType dtype, float value) {
  std::byte element[sizeof(float)];
  StoreElement(dtype, value, element);
  return LoadElement(dtype, element);
}

std::vector<float> RandomValues(size_t count, ir::DType dtype, Values values, std::mt19937_64& random) {
  // Many tests take longer to draw their values than to use them: one number gives both the kind and the value.
  const uint32_t kinds = values == Values::kExtreme ? 201 : 21;
  std::vector<float> result(count);
  for (float& value : result) {
    const uint64_t bits = random();
    value = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-30f;
    switch (static_cast<uint32_t>(bits) % kinds) {
      case 0:
        value = -0.0f;
        break;
      case 1:
        value *= values == Values::kExtreme ? 0x1p-70f : 0x1p-12f;
        break;
      case 101:
        value = INFINITY;
        break;
      case 102:
        value = std::nanf("");
        break;
      case 103:
        value *= 0x1p-133f;
        break;
      case 104:
        value *= 0x1p100f;
        break;
      default:
        break;
    }
    value = Exact(dtype, value);
  }
  return result;
}

}  // namespace

Problem RandomProblem(const ir::KernelSpec& spec, int64_t rows, Values values, uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  problem.spec = spec;
  problem.rows = rows;
  const bool indirect = spec.access == ir::Access::kIndirect;
  const int64_t pixels = indirect ? rows + 3 : rows;
  problem.x = RandomValues(pixels * spec.channels(), spec.x, values, random);
  if (indirect) {
    std::uniform_int_distribution<int64_t> pixel(-1, pixels - 1);
    problem.taps.resize(rows * spec.taps);
    for (int64_t& tap : problem.taps) tap = pixel(random);
  }
  problem.weights = RandomValues(spec.n * spec.depth(), spec.w, values, random);
  if (spec.bias != ir::BiasKind::kNone) {
    problem.bias = RandomValues(spec.n, ir::DType::kFloat32, values, random);
  }
  return problem;
}

namespace {

// Row i's inputs in the order of depth: [taps, channels].
std::vector<float> GatherRow(const Problem& problem, int64_t i) {
  const ir::KernelSpec& spec = problem.spec;
  const int64_t channels = spec.channels();
  std::vector<float> row(spec.taps * channels);
  for (int64_t tap = 0; tap < spec.taps; ++tap) {
    const int64_t pixel = spec.access == ir::Access::kDense ? i : problem.taps[i * spec.taps + tap];
    for (int64_t c = 0; c < channels; ++c) row[tap * channels + c] = pixel < 0 ? 0.0f : problem.x[pixel * channels + c];
  }
  return row;
}

// Calls take(row, n, x, w) for each k of each sum, and done(row, n) after each.
template <typename Take, typename Done>
void ForEachSum(const Problem& problem, Take take, Done done) {
  const ir::KernelSpec& spec = problem.spec;
  const bool depthwise = spec.contraction == ir::Contraction::kDepthwise;
  const int64_t channels = spec.channels();
  for (int64_t i = 0; i < problem.rows; ++i) {
    const std::vector<float> row = GatherRow(problem, i);
    for (int64_t n = 0; n < spec.n; ++n) {
      const float* const weights = problem.weights.data() + n * spec.depth();
      for (int64_t k = 0; k < spec.depth(); ++k) take(depthwise ? row[k * channels + n] : row[k], weights[k]);
      done(i, n);
    }
  }
}

}  // namespace

namespace {

// Rule 1's chain. Tests spend most of their time in it, so where the CPU has the instruction it is that, not a call.
struct Factors {
  const float* x;
  int64_t x_step;
  const float* w;
  int64_t count;
};
__attribute__((target("fma"))) float ChainByInstruction(const Factors& f) {
  float sum = 0.0f;
  for (int64_t k = 0; k < f.count; ++k) sum = __builtin_fmaf(f.x[k * f.x_step], f.w[k], sum);
  return sum;
}
float ChainByLibrary(const Factors& f) {
  float sum = 0.0f;
  for (int64_t k = 0; k < f.count; ++k) sum = std::fma(f.x[k * f.x_step], f.w[k], sum);
  return sum;
}

}  // namespace

std::vector<float> Contract(const Problem& problem) {
  static const auto chain = Detect(CpuidRecord::Host(IsaLevel::kAvx2), IsaLevel::kAvx2).Has(Feature::kAvx2)
                                ? ChainByInstruction
                                : ChainByLibrary;
  const ir::KernelSpec& spec = problem.spec;
  const bool depthwise = spec.contraction == ir::Contraction::kDepthwise;
  std::vector<float> sums;
  sums.reserve(problem.rows * spec.n);
  for (int64_t i = 0; i < problem.rows; ++i) {
    const std::vector<float> row = GatherRow(problem, i);
    for (int64_t n = 0; n < spec.n; ++n) {
      sums.push_back(chain({.x = row.data() + (depthwise ? n : 0),
                            .x_step = depthwise ? spec.channels() : 1,
                            .w = problem.weights.data() + n * spec.depth(),
                            .count = spec.depth()}));
    }
  }
  return sums;
}

std::vector<std::byte> Finish(const Problem& problem, std::span<const float> sums) {
  const ir::KernelSpec& spec = problem.spec;
  const ir::Program& program = ir::ProgramOf(spec.activation);
  const auto size = static_cast<int64_t>(ir::SizeOf(spec.y));
  std::vector<std::byte> y(problem.rows * spec.outputs() * size);
  for (int64_t i = 0; i < problem.rows; ++i) {
    const auto biased = [&](int64_t n) {
      const float sum = sums[i * spec.n + n];
      return problem.bias.empty() ? sum : sum + problem.bias[n];
    };
    for (int64_t o = 0; o < spec.outputs(); ++o) {
      const float inputs[2] = {biased(o), spec.gated() ? biased(spec.n / 2 + o) : 0.0f};
      StoreElement(spec.y, ir::Evaluate(program, inputs), y.data() + (i * spec.outputs() + o) * size);
    }
  }
  return y;
}

std::vector<std::byte> Reference(const Problem& problem) { return Finish(problem, Contract(problem)); }

int64_t FirstBeyondBound(const Problem& problem, std::span<const float> sums) {
  // Doubles hold each product exactly, and their sums 2^29 times as closely as the bound asks.
  double exact = 0, magnitude = 0, flushed = 0;
  int64_t first = -1;
  ForEachSum(
      problem,
      [&](float x, float w) {
        exact += static_cast<double>(x) * w;
        magnitude += std::fabs(static_cast<double>(x) * w);
        flushed += std::fabs(static_cast<double>(x)) + std::fabs(static_cast<double>(w)) + 1;
      },
      [&](int64_t i, int64_t n) {
        const float got = sums[i * problem.spec.n + n];
        const auto depth = static_cast<double>(problem.spec.depth());
        const double bound = (2 * depth + 1) * 0x1p-24 * magnitude + 0x1p-126 * flushed;
        bool good = std::fabs(got - exact) <= bound;
        // Beyond f32 the order of the steps decides what overflows first.
        if (!std::isfinite(exact)) good = std::isnan(exact) ? std::isnan(got) : got == exact || std::isnan(got);
        if (std::isfinite(magnitude) && magnitude > 0x1.fp127) good = true;
        if (!good && first < 0) first = i * problem.spec.n + n;
        exact = magnitude = flushed = 0;
      });
  return first;
}

void ReportStrayWrite(int64_t row, int64_t at, int64_t row_bytes, std::string* stray_write) {
  const std::string text = absl::StrCat("byte ", at, " of row ", row, " was written, which has ", row_bytes);
  if (stray_write == nullptr) {
    ADD_FAILURE() << text;
  } else {
    *stray_write = text;
  }
}

std::vector<std::byte> RunGuarded(const LoadedKernel& kernel, const Problem& problem, GuardedBuffer::Edge edge,
                                  int64_t tile_rows, int64_t tile_panels, std::string* stray_write) {
  constexpr std::byte kCanary{0xA5};
  const ir::KernelSpec& spec = problem.spec;
  const auto x_size = static_cast<int64_t>(ir::SizeOf(spec.x));
  const auto y_size = static_cast<int64_t>(ir::SizeOf(spec.y));
  const bool indirect = spec.access == ir::Access::kIndirect;

  // Rows of x lie a little apart; the last one ends at the guard page.
  const int64_t pixels = indirect ? problem.rows + 3 : problem.rows;
  const int64_t channels = spec.channels();
  const int64_t x_stride = (channels + 3) * x_size;
  GuardedBuffer x(pixels > 0 ? (pixels - 1) * x_stride + channels * x_size : 0, edge);
  std::memset(x.data(), 0xFF, x.bytes());  // NaN in the gaps
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < channels; ++c) {
      StoreElement(spec.x, problem.x[p * channels + c], x.data() + p * x_stride + c * x_size);
    }
  }
  GuardedBuffer offsets(problem.taps.size() * sizeof(int64_t), edge);
  for (size_t i = 0; i < problem.taps.size(); ++i) {
    offsets.as<int64_t>()[i] = problem.taps[i] < 0 ? kZeroTap : problem.taps[i] * x_stride;
  }

  const ir::PanelLayout layout = ir::LayoutOf(kernel.image().spec);
  GuardedBuffer weights(layout.TotalBytes(), edge);
  std::memset(weights.data(), 0, weights.bytes());
  for (int64_t panel = 0; panel < layout.Panels(); ++panel) {
    for (int64_t k = 0; k < spec.depth(); ++k) {
      for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
        const int64_t row = layout.RowOf(panel, lane);
        if (row < 0) continue;
        StoreElement(spec.w, problem.weights[row * spec.depth() + k],
                     weights.data() + panel * layout.PanelBytes() + layout.OffsetOf(lane, k));
      }
    }
  }
  const bool biased = spec.bias != ir::BiasKind::kNone;
  GuardedBuffer bias(biased ? layout.Panels() * layout.OutputsPerPanel() * sizeof(float) : 0, edge);
  std::memset(bias.data(), 0, bias.bytes());
  std::ranges::copy(problem.bias, bias.as<float>());

  const int64_t y_stride = (spec.outputs() + 5) * y_size;
  const int64_t y_row = spec.outputs() * y_size;
  GuardedBuffer y(problem.rows > 0 ? (problem.rows - 1) * y_stride + y_row : 0, edge);
  std::memset(y.data(), static_cast<int>(kCanary), y.bytes());

  const KernelImage& image = kernel.image();
  const int64_t scratch_bytes =
      ScratchBytes(spec, image.schedule, std::min(tile_rows, problem.rows), std::min(tile_panels, layout.Panels()));
  GuardedBuffer scratch((scratch_bytes + 63) / 64 * 64, edge);
  std::memset(scratch.data(), 0xFF, scratch.bytes());

  for (int64_t row = 0; row < problem.rows; row += tile_rows) {
    for (int64_t panel = 0; panel < layout.Panels(); panel += tile_panels) {
      TileArgs args;
      args.x = indirect ? x.data() : x.data() + row * x_stride;
      args.x_stride = x_stride;
      args.offsets = indirect ? offsets.as<int64_t>() + row * spec.taps : nullptr;
      args.rows = std::min(tile_rows, problem.rows - row);
      args.weights = weights.data() + panel * layout.PanelBytes();
      args.first_panel = panel;
      args.panels = std::min(tile_panels, layout.Panels() - panel);
      args.bias = biased ? bias.as<float>() : nullptr;
      args.y = y.data() + row * y_stride;
      args.y_stride = y_stride;
      args.scratch = scratch.data();
      kernel.Run(args);
    }
  }

  std::vector<std::byte> result(problem.rows * y_row);
  for (int64_t i = 0; i < problem.rows; ++i) {
    if (y_row > 0) std::memcpy(result.data() + i * y_row, y.data() + i * y_stride, y_row);
    if (i + 1 == problem.rows) continue;
    for (int64_t at = y_row; at < y_stride; ++at) {
      if (y.data()[i * y_stride + at] != kCanary) ReportStrayWrite(i, at, y_row, stray_write);
    }
  }
  return result;
}

namespace {

// The kernel without bias, activation and rounding, from the same emitter for the same target.
std::optional<EmittedKernel> SumsOf(const EmittedKernel& kernel, const ir::KernelSpec& sums) {
  const Emitter& emitter = *FindEmitter(kernel.emitter);
  for (const Target& target : RunnableTargets()) {
    const auto same = emitter.Emit(kernel.spec, target);
    if (!std::holds_alternative<EmittedKernel>(same)) continue;
    if (std::get<EmittedKernel>(same).code != kernel.code) continue;
    auto emitted = emitter.Emit(sums, target);
    if (std::holds_alternative<EmittedKernel>(emitted)) return std::get<EmittedKernel>(std::move(emitted));
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> Wanted(const EmittedKernel& kernel, const Problem& problem) {
  if (!ir::HasOwnSums(kernel.spec.product)) return Reference(problem);
  Problem plain = problem;
  plain.bias.clear();
  plain.spec.bias = ir::BiasKind::kNone;
  plain.spec.activation = ir::Activation::kNone;
  plain.spec.y = ir::DType::kFloat32;
  ir::KernelSpec spec = plain.spec;
  spec.product = kernel.spec.product;
  spec.interleave = kernel.spec.interleave;
  const std::optional<EmittedKernel> emitted = SumsOf(kernel, spec);
  if (!emitted) {
    ADD_FAILURE() << "no kernel of the sums alone: " << spec.ToString();
    return {};
  }
  const std::vector<std::byte> bytes =
      RunGuarded(LoadedKernel(*emitted), plain, GuardedBuffer::Edge::kEnd, std::max<int64_t>(1, problem.rows), 1 << 20);
  std::vector<float> sums(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(sums.data(), bytes.data(), bytes.size());
  EXPECT_EQ(FirstBeyondBound(plain, sums), -1) << "beyond the bound of rule 5: " << spec.ToString();
  return Finish(problem, sums);
}

int64_t FirstDifference(ir::DType dtype, std::span<const std::byte> got, std::span<const std::byte> wanted) {
  const size_t size = ir::SizeOf(dtype);
  if (got.size() != wanted.size()) return 0;
  for (size_t at = 0; at < got.size(); at += size) {
    if (std::memcmp(got.data() + at, wanted.data() + at, size) == 0) continue;
    if (std::isnan(LoadElement(dtype, got.data() + at)) && std::isnan(LoadElement(dtype, wanted.data() + at))) continue;
    return static_cast<int64_t>(at / size);
  }
  return -1;
}

}  // namespace clikart::codegen
