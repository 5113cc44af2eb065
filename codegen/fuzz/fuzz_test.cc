// The fuzzer finds what is wrong: emitters with planted faults, and none where there are none.
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "check.h"
#include "clikart/ir/panel_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

// The portable emitter, and then something else.
class Faulty final : public Emitter {
 public:
  explicit Faulty(TileFunction run) : run_(run) {}
  std::string_view name() const override { return "faulty"; }
  bool needs_executable_memory() const override { return false; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target&) const override {
    auto emitted = FindEmitter("portable")->Emit(spec, Target{});
    std::get<EmittedKernel>(emitted).run = run_;
    return emitted;
  }

 private:
  TileFunction run_;
};

void RunPortable(const KernelImage& kernel, const TileArgs& args) {
  std::get<EmittedKernel>(FindEmitter("portable")->Emit(kernel.spec, Target{})).run(kernel, args);
}

// The last column of all, where it lies in a panel that is not full; null elsewhere.
std::byte* TailColumn(const KernelImage& kernel, const TileArgs& args) {
  const ir::PanelLayout layout = ir::LayoutOf(kernel.spec);
  const bool last = args.first_panel + args.panels == layout.Panels();
  if (!last || args.rows == 0 || layout.outputs() % layout.OutputsPerPanel() < 2) return nullptr;
  return args.y + (args.rows - 1) * args.y_stride +
         (layout.outputs() - 1) * static_cast<int64_t>(ir::SizeOf(kernel.spec.y));
}

void TailLaneOffByOne(const KernelImage& kernel, const TileArgs& args) {
  RunPortable(kernel, args);
  const size_t size = ir::SizeOf(kernel.spec.y);
  if (std::byte* const tail = TailColumn(kernel, args)) std::memcpy(tail, tail - size, size);
}

void WritesBehindTheRow(const KernelImage& kernel, const TileArgs& args) {
  RunPortable(kernel, args);
  std::byte* const tail = TailColumn(kernel, args);
  if (tail != nullptr && args.rows > 1) *(tail - args.y_stride + ir::SizeOf(kernel.spec.y)) = std::byte{0};
}

void ReadsBehindX(const KernelImage& kernel, const TileArgs& args) {
  RunPortable(kernel, args);
  const auto row = kernel.spec.k * static_cast<int64_t>(ir::SizeOf(kernel.spec.x));
  if (args.rows == 0 || kernel.spec.access != ir::Access::kDense || row < 32) return;
  const volatile std::byte* const behind = args.x + (args.rows - 1) * args.x_stride + row;
  static_cast<void>(*behind);
}

void RunsNoInstruction(const KernelImage& kernel, const TileArgs& args) {
  RunPortable(kernel, args);
  if (args.rows == 5) __builtin_trap();
}

// The first wrong case among `count`, made small.
std::optional<Case> Find(const Emitter& emitter, int count) {
  std::mt19937_64 random(5);
  constexpr Effort kEffort{.products = 20'000};
  for (int i = 0; i < count; ++i) {
    Case c;
    c.emitter = std::string(emitter.name());
    c.spec = RandomSpec(c.target, kEffort, random);
    EXPECT_TRUE(c.spec.Verify().ok()) << c.spec.Verify();
    c = WithRandomRun(c, kEffort, random);
    if (Check(c, emitter).kind == Verdict::Kind::kWrong) return Shrink(c, emitter);
  }
  return std::nullopt;
}

TEST(Fuzz, FindsATailLaneThatIsOffByOne) {
  const Faulty emitter(TailLaneOffByOne);
  const std::optional<Case> c = Find(emitter, 200);
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->rows, 1);
  EXPECT_LE(c->spec.outputs(), 2 + 8);
  EXPECT_LE(c->spec.k, 1);
  EXPECT_EQ(c->spec.activation, ir::Activation::kNone);
  EXPECT_THAT(Check(*c, emitter).text, ::testing::HasSubstr("expected"));
}

TEST(Fuzz, FindsStrayWritesAndReadsAndBadInstructions) {
  const Faulty writes(WritesBehindTheRow), reads(ReadsBehindX), traps(RunsNoInstruction);
  const std::optional<Case> written = Find(writes, 200), read = Find(reads, 200), trapped = Find(traps, 400);
  ASSERT_TRUE(written.has_value());
  EXPECT_THAT(Check(*written, writes).text, ::testing::HasSubstr("was written"));
  ASSERT_TRUE(read.has_value());
  EXPECT_THAT(Check(*read, reads).text, ::testing::HasSubstr("SIGSEGV"));
  ASSERT_TRUE(trapped.has_value());
  EXPECT_THAT(Check(*trapped, traps).text, ::testing::HasSubstr("SIGILL"));
}

TEST(Fuzz, FindsNothingWhereNothingIsWrong) { EXPECT_FALSE(Find(Faulty(RunPortable), 100).has_value()); }

TEST(Fuzz, ACaseComesBackFromItsText) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    Case c;
    c.emitter = "portable";
    c.target = TargetOf(AllIsaLevels()[i % AllIsaLevels().size()]);
    c.spec = RandomSpec(c.target, {}, random);
    c = WithRandomRun(c, {}, random);
    const absl::StatusOr<Case> parsed = Case::Parse(c.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), c.ToString());
    EXPECT_EQ(parsed->target, c.target);
  }
  for (const char* text : {"", "rows=1", "nothing rows=1 emitter=portable"}) EXPECT_FALSE(Case::Parse(text).ok());
}

}  // namespace
}  // namespace clikart::codegen
