#include <gmock/gmock.h>

#include <variant>

#include "build_identity.h"
#include "cli_testing.h"
#include "clikart/codegen/driver.h"
#include "clikart/codegen/emitter.h"
#include "kernel_record.h"

namespace clikart::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Where LLVM was not there at build time, its commands have to say so.
#define NEEDS_LLVM() \
  if (!CLIKART_BUILDS_LLVM) GTEST_SKIP() << "built without LLVM"

class InspectTest : public CliTest {
 protected:
  // A kernel for a machine that need not be this one; its key.
  std::string Add(codegen::IsaLevel level, int64_t n = 48) {
    ir::KernelSpec spec;
    spec.n = n;
    spec.k = 64;
    spec.activation = ir::Activation::kRelu;
    const codegen::Target target = codegen::TargetOf(level);
    auto emitted = codegen::FindEmitter("xbyak")->Emit(spec, target);
    const auto& kernel = std::get<codegen::EmittedKernel>(emitted);
    const cache::Entry entry =
        *ToEntry(kernel, clikart::KeyOf(spec, target, "xbyak", BuildIdentity()), codegen::Drivers(), 0.001);
    EXPECT_TRUE(cache::Folder({.path = path()}).Save({&entry, 1}).ok());
    return entry.key.Name();
  }
};

TEST_F(InspectTest, DisasmMarksEntriesAndLoops) {
  NEEDS_LLVM();
  const std::string key = Add(codegen::IsaLevel::kAvx2);
  ASSERT_EQ(Do({"disasm", key.substr(0, 12)}), kDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr(key), HasSubstr("\nentry_0:\n"), HasSubstr("  main loop micro "),
                          HasSubstr("  loop epilogue: "), HasSubstr("\n* "), HasSubstr("\n| "),
                          HasSubstr("vfmadd231ps ymm"), HasSubstr("  -> "), Not(HasSubstr("\033"))));
  base_.bold = true;
  ASSERT_EQ(Do({"disasm", key}), kDone);
  EXPECT_THAT(out_, HasSubstr("\033[1m\nentry_0:\033[0m\n"));
  ASSERT_EQ(Do({"disasm", key}, true), kDone);
  EXPECT_THAT(
      out_, AllOf(HasSubstr("\"key\": \"" + key + "\""), HasSubstr("\"main\": true"), HasSubstr("\"jumps_to\": "),
                  HasSubstr("{\"offset\": 0, \"bytes\": \""), HasSubstr("\"text\": \"ret\""), Not(HasSubstr("\033"))));
}

TEST_F(InspectTest, McaPredictsMainLoops) {
  NEEDS_LLVM();
  const std::string key = Add(codegen::IsaLevel::kAvx512);
  ASSERT_EQ(Do({"mca", key}), kDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("BOTTLENECK"), HasSubstr("sapphirerapids"), HasSubstr("znver4"),
                          HasSubstr("micro "), Not(HasSubstr("epilogue"))));
  base_.cpu = "skylake-avx512";
  ASSERT_EQ(Do({"mca", key}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"cpu\": \"skylake-avx512\""), HasSubstr("\"cycles\": "),
                          HasSubstr("\"bottleneck\": \"SKXPort"), Not(HasSubstr("znver4"))));
  base_.cpu = "haswell";  // has no AVX-512
  EXPECT_EQ(Do({"mca", key}), kUsage);
  EXPECT_THAT(err_, AllOf(HasSubstr("\"haswell\""), HasSubstr("avx512"), HasSubstr("znver4")));
  EXPECT_EQ(Do({"mca", Add(codegen::IsaLevel::kAvx2)}), kDone) << err_;
  base_.cpu = "pentium9";
  EXPECT_EQ(Do({"mca", key}), kUsage);
}

TEST_F(InspectTest, TilesHaveCountsAndNoPrediction) {
  NEEDS_LLVM();
  ir::KernelSpec spec;
  spec.n = spec.k = 64;
  spec.x = spec.w = spec.y = ir::DType::kBFloat16;
  spec.product = ir::Product::kTileBf16;
  spec.interleave = 2;
  const codegen::Target target = codegen::TargetOf(codegen::IsaLevel::kAmx);
  auto emitted = codegen::FindEmitter("xbyak")->Emit(spec, target);
  const cache::Entry entry =
      *ToEntry(std::get<codegen::EmittedKernel>(emitted), clikart::KeyOf(spec, target, "xbyak", BuildIdentity()),
               codegen::Drivers(), 0.001);
  ASSERT_TRUE(cache::Folder({.path = path()}).Save({&entry, 1}).ok());
  base_.cpu = "sapphirerapids";
  ASSERT_EQ(Do({"mca", entry.key.Name()}, true), kDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("\"problem\": \"models know too little of tiles\""), Not(HasSubstr("cycles"))));
}

TEST_F(InspectTest, EntriesOfOtherBuildsAreShown) {
  NEEDS_LLVM();
  Fill(1);  // a signature of this build, code of none
  ASSERT_EQ(Do({"disasm", KeyOf(1)}), kDone) << err_;
  EXPECT_THAT(out_, HasSubstr("  ret\n"));
  EXPECT_EQ(Do({"mca", KeyOf(1)}), kDone);  // it has no loop
  cache::Entry entry = EntryNumber(1);
  entry.key.build = "damaged by its emitter";
  entry.code.assign(entry.code.size(), 0x06);  // no instruction in 64-bit mode
  ASSERT_TRUE(cache::Folder({.path = path()}).Save({&entry, 1}).ok());
  EXPECT_EQ(Do({"disasm", entry.key.Name()}), kBadEntries);
  EXPECT_THAT(err_, HasSubstr("no instruction at byte 0"));
}

TEST_F(InspectTest, WithoutLlvmTheCommandsSayWhatIsMissing) {
  const std::string key = Add(codegen::IsaLevel::kAvx2);
  base_.analysis_object = "libclikart_analysis_that_is_not_there.so";
  for (const char* command : {"disasm", "mca"}) {
    EXPECT_EQ(Do({command, key}), kFailed);
    EXPECT_THAT(err_, AllOf(HasSubstr("needs LLVM"), HasSubstr("CLIKART_LLVM"), HasSubstr("No such file")));
    EXPECT_EQ(Do({command}), kUsage);
    EXPECT_EQ(Do({command, "xyz"}), kBadEntries);
  }
  base_.analysis_object = "libm.so.6";
  EXPECT_EQ(Do({"disasm", key}), kFailed);
}

}  // namespace
}  // namespace clikart::cli
