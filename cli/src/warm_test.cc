#include <gmock/gmock.h>

#include <fstream>

#include "cli_testing.h"

namespace clikart::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kManifest[] =
    "clikart warm-up manifest 1\n"
    "kernel kind=float n=48 k=64 x=f32 w=f32 y=f32 act=relu\n"
    "kernel kind=float n=48 k=64 x=bf16 w=bf16 y=bf16\n";

class WarmTest : public CliTest {
 protected:
  std::string Write(const std::string& text) const {
    std::ofstream(place_ / "manifest") << text;
    return place_ / "manifest";
  }
};

TEST_F(WarmTest, CompilesForAnotherMachine) {
  const std::string manifest = Write(kManifest);
  base_.target = "avx2";
  base_.jobs = 2;
  EXPECT_EQ(Do({"warmup", manifest}), kDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("compiled 2, there already 0, without code 0, failed 0"),
                          HasSubstr("for avx2: sse42 avx2\n")));
  EXPECT_EQ(err_, "");
  EXPECT_EQ(Do({"warmup", manifest}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"target\": \"avx2: sse42 avx2\", \"compiled\": 0, \"loaded\": 2"),
                          HasSubstr("product=fma interleave=2"), HasSubstr("\"outcome\": \"loaded\"")));
  base_.target = "amx";
  EXPECT_EQ(Do({"warmup", manifest}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"compiled\": 2"), HasSubstr("product=tile_bf16"), Not(HasSubstr("problem"))));
  EXPECT_EQ(Do({"list"}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"features\": \"avx2: sse42 avx2\""), HasSubstr("\"features\": \"amx: ")));
}

TEST_F(WarmTest, ShowsHowFarItIsOnATerminal) {
  base_.target = "avx2";
  base_.progress = true;
  EXPECT_EQ(Do({"warmup", Write(kManifest)}), kDone);
  EXPECT_THAT(err_, AllOf(HasSubstr("\r1 of 2 kernels\r2 of 2 kernels"), ::testing::EndsWith(" \r")));
}

TEST_F(WarmTest, TellsWhatNoEmitterMakes) {
  base_.target = "baseline";
  EXPECT_EQ(Do({"warmup", Write(std::string(kManifest) + "emitter xbyak\n")}), kDone);
  EXPECT_THAT(out_, HasSubstr("without code 2"));
  EXPECT_THAT(err_, AllOf(HasSubstr("no code for kind=float"), HasSubstr("isa_too_old")));
  EXPECT_EQ(Do({"warmup", place_ / "manifest"}, true), kDone);
  EXPECT_THAT(out_, AllOf(HasSubstr("\"outcome\": \"rejected\""), HasSubstr("\"isa_too_old: ")));
}

TEST_F(WarmTest, ExitCodes) {
  const std::string manifest = Write(kManifest);
  EXPECT_EQ(Do({"warmup"}), kUsage);
  EXPECT_EQ(Do({"warmup", manifest, manifest}), kUsage);
  base_.target = "i386";
  EXPECT_EQ(Do({"warmup", manifest}), kUsage);
  EXPECT_THAT(err_, AllOf(HasSubstr("\"i386\""), HasSubstr("avx512_vnni")));
  base_.target = "avx2";
  base_.jobs = -1;
  EXPECT_EQ(Do({"warmup", manifest}), kUsage);
  base_.jobs = 0;
  EXPECT_EQ(Do({"warmup", place_ / "none"}), kFailed);
  EXPECT_EQ(Do({"warmup", Write(std::string(kManifest) + "kernel kind=float n=0\n")}), kBadEntries);
  EXPECT_THAT(err_, HasSubstr("manifest\", line 4: \"k\" is missing"));
  EXPECT_FALSE(fs::exists(path()));
  std::ofstream(path()) << "in the way\n";
  EXPECT_EQ(Do({"warmup", Write(kManifest)}), kFailed);
}

}  // namespace
}  // namespace clikart::cli
