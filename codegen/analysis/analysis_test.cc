// The analysis on loops that are small enough to work out by hand.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "clikart/analysis/disassembly.h"
#include "clikart/analysis/kernel_loops.h"
#include "clikart/analysis/prediction.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/product.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace clikart::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::vector<uint8_t>;

Bytes Join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// vfmadd231ps zmm<accumulator>, zmm30, zmm31 for 0 <= accumulator < 8
Bytes Fma(int accumulator) { return {0x62, 0x92, 0x0d, 0x40, 0xb8, static_cast<uint8_t>(0xc7 | accumulator << 3)}; }
const Bytes kFmaOfMemory = {0x62, 0xf2, 0x7d, 0x48, 0xb8, 0x08};  // vfmadd231ps zmm1, zmm0, [rax]
const Bytes kBroadcast = {0x62, 0x62, 0x7d, 0x48, 0x18, 0x28};    // vbroadcastss zmm29, [rax]
const Bytes kLoad = {0x62, 0x61, 0x7c, 0x48, 0x10, 0x28};         // vmovups zmm29, [rax]
const Bytes kSpill = {0x62, 0xf1, 0x7c, 0x48, 0x11, 0x04, 0x24};  // vmovups [rsp], zmm0
const Bytes kTileLoad = {0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x08};     // tileloadd tmm0, [rax + rcx]
const Bytes kTileProduct = {0xc4, 0xe2, 0x6a, 0x5c, 0xc1};        // tdpbf16ps tmm0, tmm1, tmm2
const Bytes kDecrement = {0x48, 0xff, 0xc9};                      // dec rcx
const Bytes kAdd = {0x48, 0x83, 0xc0, 0x40};                      // add rax, 64

Bytes JumpBack(size_t bytes) { return {0x75, static_cast<uint8_t>(-static_cast<int>(bytes) - 2)}; }

Bytes Loop(Bytes body) {
  body = Join({body, kDecrement});
  return Join({body, JumpBack(body.size())});
}

Bytes Fmas(int chains) {
  Bytes body;
  for (int i = 0; i < chains; ++i) body = Join({body, Fma(i)});
  return body;
}

Prediction MustPredict(const Bytes& loop, std::string_view cpu) {
  const auto prediction = Predict(loop, cpu);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.value_or(Prediction());
}

TEST(Disassembly, ShowsTextAndJumps) {
  const auto lines = Disassemble(Loop(Fma(3)));
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_EQ(lines->at(0).text, "vfmadd231ps zmm3, zmm30, zmm31");
  EXPECT_EQ(lines->at(0).jumps_to, Line::kNone);
  EXPECT_EQ(lines->at(2).offset, 9);
  EXPECT_EQ(lines->at(2).jumps_to, 0);
}

TEST(Disassembly, NamesTheByteThatIsNoInstruction) {
  const auto lines = Disassemble(Join({kDecrement, {0x06}}));
  ASSERT_FALSE(lines.ok());
  EXPECT_THAT(std::string(lines.status().message()), HasSubstr("byte 3"));
}

TEST(Disassembly, FindsInnerLoopsOnly) {
  const Bytes inner = Loop(Fma(0));
  const Bytes outer = Join({kAdd, inner, kDecrement});
  const Bytes code = Join({kAdd, outer, JumpBack(outer.size()), Loop(Fma(1))});
  const auto lines = Disassemble(code);
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto size = static_cast<int64_t>(code.size()), loop = static_cast<int64_t>(inner.size());
  EXPECT_THAT(InnerLoops(*lines), ElementsAre(CodeRange{8, 8 + loop}, CodeRange{size - loop, size}));
}

TEST(Disassembly, KnowsThatAJumpToAnEarlierExitIsNoLoop) {
  const Bytes exit = {0xc3};
  const auto lines = Disassemble(Join({exit, kAdd, JumpBack(exit.size() + kAdd.size())}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_TRUE(lines->front().returns);
  EXPECT_THAT(InnerLoops(*lines), IsEmpty());
}

TEST(Prediction, CountsWhatALoopConsistsOf) {
  const auto counts = CountLoop(Loop(Join({Fma(0), kFmaOfMemory, kSpill, kTileLoad, kTileProduct})));
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->instructions, 7);
  EXPECT_EQ(counts->multiplies, 2);
  EXPECT_EQ(counts->tile_products, 1);
  EXPECT_EQ(counts->tile_loads, 1);
  EXPECT_EQ(counts->loads, 1);
  EXPECT_EQ(counts->stores, 1);
  EXPECT_EQ(counts->stack_accesses, 1);
}

// Two fmas a cycle with a latency of four: eight chains fill the ports, one leaves seven eighths idle.
TEST(Prediction, SkylakeMultipliesOnTwoPorts) {
  const Prediction full = MustPredict(Loop(Fmas(8)), "skylake-avx512");
  EXPECT_DOUBLE_EQ(full.limit_cycles, 4);
  EXPECT_NEAR(full.cycles, 4, 0.2);
  EXPECT_GT(full.Share().value_or(0), 95);
  EXPECT_THAT(full.bottleneck, HasSubstr("SKXPort"));

  const Prediction chain = MustPredict(Loop(Fma(0)), "skylake-avx512");
  EXPECT_DOUBLE_EQ(chain.limit_cycles, 0.5);
  EXPECT_NEAR(chain.cycles, 4, 0.1);
  EXPECT_NEAR(chain.Share().value_or(0), 12.5, 0.5);
  EXPECT_THAT(chain.bottleneck, HasSubstr("latency"));
}

// Models would have fmas wait for them.
TEST(Prediction, LoadsAndBroadcastsTakeNoMultiplier) {
  Bytes fed = Fmas(8);
  for (int i = 0; i < 4; ++i) fed = Join({fed, kBroadcast, kLoad});
  for (const std::string_view cpu : KnownCpus()) {
    EXPECT_NEAR(MustPredict(Loop(fed), cpu).cycles, MustPredict(Loop(Fmas(8)), cpu).cycles, 0.1) << cpu;
  }
}

TEST(Prediction, Zen4TakesTwoCyclesForWideVectors) {
  EXPECT_DOUBLE_EQ(MustPredict(Loop(Fmas(8)), "znver4").limit_cycles, 8);
}

TEST(Prediction, HasNoShareWithoutMultiplications) {
  EXPECT_FALSE(MustPredict(Loop(kAdd), "znver4").Share().has_value());
}

TEST(Prediction, NamesTheCpuItDoesNotKnow) {
  const auto prediction = Predict(Loop(Fma(0)), "abacus");
  ASSERT_FALSE(prediction.ok());
  EXPECT_THAT(std::string(prediction.status().message()), HasSubstr("abacus"));
  EXPECT_FALSE(CpuHas("abacus", "+avx2"));
}

TEST(Prediction, KnowsWhatCpusHave) {
  EXPECT_TRUE(CpuHas("sapphirerapids", "+amx-int8,+avxvnni"));
  EXPECT_TRUE(CpuHas("znver4", "+avx512bf16"));
  EXPECT_FALSE(CpuHas("znver4", "+avx512bf16,+avxvnni"));
  EXPECT_FALSE(CpuHas("skylake-avx512", "+avx512vnni"));
}

TEST(KernelLoops, TakesCpusAsTargets) {
  using codegen::IsaLevel;
  EXPECT_EQ(TargetOfCpu("sapphirerapids", codegen::kWidestIsa).level(), IsaLevel::kAmx);
  EXPECT_EQ(TargetOfCpu("sapphirerapids", IsaLevel::kAvx2), codegen::TargetOf(IsaLevel::kAvx2));
  EXPECT_EQ(TargetOfCpu("znver4", codegen::kWidestIsa).level(), IsaLevel::kAvx512Bf16);
  EXPECT_EQ(TargetOfCpu("haswell", codegen::kWidestIsa).level(), IsaLevel::kAvx2);
  EXPECT_EQ(TargetOfCpu("abacus", codegen::kWidestIsa), codegen::Target());
}

TEST(KernelLoops, AreFoundInAKernel) {
  ir::KernelSpec spec;
  spec.n = 64;
  spec.k = 512;
  const auto emitted = codegen::FindEmitter("xbyak")->Emit(spec, codegen::TargetOf(codegen::IsaLevel::kAvx2));
  const auto& kernel = std::get<codegen::EmittedKernel>(emitted);
  const auto loops = LoopsOf(kernel);
  ASSERT_TRUE(loops.ok()) << loops.status();
  EXPECT_GT(loops->size(), 10u);
  int main_loops = 0;
  for (const KernelLoop& loop : *loops) {
    if (!loop.main) continue;
    ++main_loops;
    EXPECT_EQ(loop.counts.stack_accesses, 0) << loop.name;
    const auto prediction = Predict(CodeOf(kernel, loop), "znver3");
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_GT(prediction->Share().value_or(0), 90) << loop.name;
  }
  EXPECT_GE(main_loops, 1);
}

// Where dot products of vectors take few rows, the main loops are those of tiles all the same.
TEST(KernelLoops, TheMainOnesAreOfTilesWhereThereAreSome) {
  for (const char* const scheme : {"int8", "int2_g32"}) {
    ir::KernelSpec spec;
    spec.contraction = ir::Contraction::kRowInt8;
    spec.n = 64;
    spec.k = 512;
    spec.scheme = ir::QuantScheme::Parse(scheme).value();
    spec.w = spec.scheme->CodeDType();
    const codegen::Target target = codegen::TargetOf(codegen::IsaLevel::kAmx);
    spec.product = codegen::ProductFor(spec, target, codegen::MathMode::kNative);
    spec.interleave = codegen::InterleaveFor(spec, target, codegen::MathMode::kNative);
    const auto emitted = codegen::FindEmitter("xbyak")->Emit(spec, target);
    const auto loops = LoopsOf(std::get<codegen::EmittedKernel>(emitted));
    ASSERT_TRUE(loops.ok()) << loops.status();
    int main_loops = 0, vectors = 0;
    for (const KernelLoop& loop : *loops) {
      vectors += loop.counts.multiplies > 4 ? 1 : 0;
      if (!loop.main) continue;
      ++main_loops;
      EXPECT_EQ(loop.counts.tile_products, 4) << loop.name;
      EXPECT_EQ(loop.counts.tile_loads, 4) << loop.name;
    }
    EXPECT_GT(main_loops, 0);
    EXPECT_GT(vectors, 0);
  }
}

// What emitters say of their loops is what a decoder finds, for every level.
TEST(KernelLoops, AreAsEmittersRecordThem) {
  int64_t recorded_loops = 0;
  for (const codegen::IsaLevel level : codegen::AllIsaLevels()) {
    for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kFloat16, ir::DType::kBFloat16}) {
      const codegen::Target target = codegen::TargetOf(level);
      ir::KernelSpec spec;
      spec.n = 64;
      spec.k = 512;
      spec.x = spec.w = spec.y = dtype;
      spec.product = codegen::ProductFor(spec, target, codegen::MathMode::kNative);
      spec.interleave = codegen::InterleaveFor(spec, target, codegen::MathMode::kNative);
      const auto emitted = codegen::FindEmitter("xbyak")->Emit(spec, target);
      const auto* const kernel = std::get_if<codegen::EmittedKernel>(&emitted);
      if (kernel == nullptr) continue;
      const auto found = LoopsOf(*kernel);
      ASSERT_TRUE(found.ok()) << found.status();
      for (const codegen::Loop& recorded : kernel->loops) {
        const CodeRange range{recorded.begin, recorded.end};
        const auto same =
            std::find_if(found->begin(), found->end(), [&](const KernelLoop& loop) { return loop.range == range; });
        ASSERT_NE(same, found->end()) << recorded.name << " of " << spec.ToString();
        EXPECT_EQ(same->counts.multiplies + same->counts.tile_products, recorded.multiplies) << recorded.name;
        ++recorded_loops;
      }
    }
  }
  EXPECT_GT(recorded_loops, 0);
}

}  // namespace
}  // namespace clikart::analysis
