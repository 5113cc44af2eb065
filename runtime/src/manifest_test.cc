#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "build_identity.h"
#include "clikart/cache/folder.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/target.h"
#include "clikart/runtime.h"
#include "clikart/warmup.h"
#include "environment.h"
#include "kernel_cache.h"
#include "kernel_intent.h"
#include "kernel_record.h"
#include "layer_testing.h"

namespace clikart {
namespace {

namespace fs = std::filesystem;
using codegen::IsaLevel;
using codegen::MathMode;
using codegen::TargetOf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeLinear;
using ::testing::Not;
using testing::Random;
using testing::Value;

constexpr char kFirstLine[] = "clikart warm-up manifest 1\n";

ir::KernelSpec Half(int64_t n, DType dtype) {
  ir::KernelSpec spec;
  spec.n = n;
  spec.k = 64;
  spec.x = spec.w = spec.y = dtype;
  spec.bias = ir::BiasKind::kFloat32;
  spec.activation = ir::Activation::kGelu;
  return spec;
}

// Kernels whose product or packing differs between machines, and some that are the same everywhere.
std::vector<ir::KernelSpec> Specs() {
  ir::KernelSpec plain;
  plain.n = 24;
  plain.k = 8;
  ir::KernelSpec integer = plain;
  integer.contraction = ir::Contraction::kInteger;
  integer.x = DType::kUInt8;
  integer.w = DType::kInt8;
  integer.interleave = 4;
  ir::KernelSpec depthwise = plain;
  depthwise.contraction = ir::Contraction::kDepthwise;
  depthwise.access = ir::Access::kIndirect;
  depthwise.k = 1;
  depthwise.taps = 9;
  ir::KernelSpec gated = plain;
  gated.activation = ir::Activation::kSwiglu;
  return {Half(16, DType::kBFloat16), Half(16, DType::kFloat16), plain, integer, depthwise, gated};
}

ir::KernelSpec Codes() {
  ir::KernelSpec spec;
  spec.contraction = ir::Contraction::kWeightOnly;
  spec.n = 24;
  spec.k = 40;
  spec.scheme = QuantScheme{.bits = 4, .group_size = 16};
  spec.w = DType::kUInt8;
  spec.interleave = 8;
  return spec;
}

class ManifestTest : public ::testing::Test {
 protected:
  ManifestTest() {
    std::string path = (fs::temp_directory_path() / "clikart-manifest-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    place_ = path;
  }
  ~ManifestTest() override {
    std::error_code ignored;
    fs::remove_all(place_, ignored);
  }
  std::string folder() const { return place_ / "cache"; }

  // Whether an entry is there that a process on `target` would find first.
  bool Finds(const ir::KernelSpec& spec, const codegen::Target& target) const {
    const cache::Folder cache({.path = folder(), .access = cache::Access::kReadOnly});
    const codegen::Emitter& first = *codegen::Emitters()[0];
    const bool taken = std::holds_alternative<codegen::EmittedKernel>(first.Emit(spec, target));
    return cache.Load(KeyOf(spec, target, taken ? first.name() : "llvm", BuildIdentity())).ok();
  }

  fs::path place_;
};

TEST(Intent, IsTheSameOnEveryMachine) {
  std::vector<ir::KernelSpec> specs = Specs();
  specs.push_back(Codes());
  for (const ir::KernelSpec& spec : specs) {
    const ir::KernelSpec intent = IntentOf(spec);
    for (const IsaLevel level : codegen::AllIsaLevels()) {
      for (const MathMode math : {MathMode::kNative, MathMode::kExact}) {
        const ir::KernelSpec there = SpecFor(spec, TargetOf(level), math);
        EXPECT_TRUE(there.Verify().ok()) << there.ToString();
        EXPECT_EQ(IntentOf(there), intent);
        EXPECT_EQ(Value(ParseIntent(there.ToString())), intent);
      }
    }
    EXPECT_EQ(Value(ParseIntent(IntentText(intent))), intent) << IntentText(intent);
  }
  EXPECT_NE(SpecFor(Specs()[0], TargetOf(IsaLevel::kAmx), MathMode::kNative),
            SpecFor(Specs()[0], TargetOf(IsaLevel::kAvx2), MathMode::kNative));
}

TEST(Intent, TextIsShort) {
  EXPECT_EQ(IntentText(IntentOf(Codes())), "kind=weight_only n=24 k=40 x=f32 w=u8 y=f32 scheme=int4_g16");
  EXPECT_EQ(IntentText(IntentOf(Half(16, DType::kBFloat16))),
            "kind=float n=16 k=64 x=bf16 w=bf16 y=bf16 bias=f32 act=gelu");
  EXPECT_EQ(Value(ParseIntent("y=f32 act=relu w=f32  x=f32 k=2 n=3 kind=float")).activation, ir::Activation::kRelu);
}

TEST(Manifest, TextAndBack) {
  WarmupManifest manifest;
  manifest.math = MathMode::kExact;
  manifest.emitter = "xbyak";
  manifest.target = "avx2: sse42 avx2";
  for (const ir::KernelSpec& spec : Specs()) manifest.Add(spec);
  for (const ir::KernelSpec& spec : Specs()) manifest.Add(SpecFor(spec, TargetOf(IsaLevel::kAmx), MathMode::kNative));
  EXPECT_EQ(manifest.kernels().size(), Specs().size());
  EXPECT_EQ(Value(WarmupManifest::Parse(manifest.ToString())), manifest);
  EXPECT_THAT(manifest.ToString(), ::testing::StartsWith(kFirstLine));
  EXPECT_THAT(manifest.ToString(), AllOf(Not(HasSubstr("product")), Not(HasSubstr("interleave"))));
  EXPECT_EQ(Value(WarmupManifest::Parse("# mine\n\n clikart warm-up manifest 1 \r\n# none\n")), WarmupManifest());
}

TEST(Manifest, ErrorsNameTheLine) {
  const auto complaint = [](const std::string& text) {
    const auto manifest = WarmupManifest::Parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(manifest.status())) << text;
    return std::string(manifest.status().message());
  };
  const std::string first = kFirstLine, good = "kernel kind=float n=16 k=64 x=f32 w=f32 y=f32";
  EXPECT_THAT(complaint(""), HasSubstr("line 1: it is empty"));
  EXPECT_THAT(complaint("\n\nkernels\n"), HasSubstr("line 3: found \"kernels\", expected \"clikart warm-up"));
  EXPECT_THAT(complaint("clikart warm-up manifest 2\n"), HasSubstr("has version 2, and this library reads version 1"));
  EXPECT_THAT(complaint(first + "colour red\n"), HasSubstr("line 2: found \"colour\""));
  EXPECT_THAT(complaint(first + "math fast\n"), HasSubstr("line 2: math: found \"fast\""));
  EXPECT_THAT(complaint(first + "emitter gcc\n"), HasSubstr("xbyak"));
  EXPECT_THAT(complaint(first + "target avx3\n"), HasSubstr("\"avx3\""));
  EXPECT_THAT(complaint(first + good + " act=fast\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint(first + "#\n" + good + " n=7\n"), HasSubstr("line 3: \"n\" is given twice"));
  EXPECT_THAT(complaint(first + good + " m=7\n"), HasSubstr("\"m\" is none of kind, "));
  EXPECT_THAT(complaint(first + good + " sixteen\n"), HasSubstr("found \"sixteen\""));
  EXPECT_THAT(complaint(first + "kernel\n"), HasSubstr("\"kind\" is missing"));
  EXPECT_THAT(complaint(first + "kernel kind=float n=1 k=1 x=f32 w=f32\n"), HasSubstr("\"y\" is missing"));
  EXPECT_THAT(complaint(first + "kernel kind=float n=-1 k=1 x=f32 w=f32 y=f32\n"), HasSubstr("n is -1"));
  EXPECT_THAT(complaint(first + "kernel kind=float n=1 k=1 x=f32 w=i8 y=f32\n"), HasSubstr("\"i8\" is not a dtype"));
  EXPECT_THAT(complaint(first + good + " act=gelu@0123\n"), HasSubstr("another formula"));
}

TEST_F(ManifestTest, FilesAreWholeOrNotThere) {
  WarmupManifest manifest;
  for (const ir::KernelSpec& spec : Specs()) manifest.Add(spec);
  const std::string path = place_ / "fleet.txt";
  EXPECT_TRUE(absl::IsNotFound(WarmupManifest::Load(path).status()));
  ASSERT_TRUE(manifest.Save(path).ok());
  EXPECT_EQ(Value(WarmupManifest::Load(path)), manifest);
  ASSERT_TRUE(WarmupManifest().Save(path).ok());
  EXPECT_EQ(Value(WarmupManifest::Load(path)), WarmupManifest());
  std::ofstream(path) << kFirstLine << "oops\n";
  EXPECT_THAT(WarmupManifest::Load(path).status().message(), AllOf(HasSubstr(path), HasSubstr("line 2")));
  EXPECT_TRUE(absl::IsNotFound(manifest.Save(place_ / "none" / "x")));
  EXPECT_FALSE(WarmupManifest::Load(place_).ok());
  EXPECT_FALSE(manifest.Save(place_).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(place_), fs::directory_iterator()), 1);  // no temporary is left
}

TEST(Manifest, RecordsARunAndCompilesItAgain) {
  ASSERT_TRUE(MakeLinear(8, 1046, 1)->Forward(Random({1, 8}, 1)).ok());
  WarmupManifest manifest = Value(WarmupManifest::Record());
  EXPECT_EQ(manifest.target, HostTarget().ToString());
  const auto ours = [](const ir::KernelSpec& spec) { return spec.n == 1046; };
  EXPECT_EQ(std::count_if(manifest.kernels().begin(), manifest.kernels().end(), ours), 1);
  WarmupManifest one;
  for (const KernelInfo& kernel : ListKernels()) {
    if (kernel.signature.find("n=1046 ") == std::string::npos) continue;
    ASSERT_TRUE(one.Add(kernel.signature).ok());
  }
  ASSERT_EQ(one.kernels().size(), 1u);
  EXPECT_FALSE(one.Add("no signature").ok());
  EXPECT_EQ(Value(one.Compile()).cached, 1);
  ClearKernels();
  EXPECT_EQ(Value(WarmupManifest::Record()), manifest);  // of the whole run
  std::vector<int64_t> steps;
  // The first run's kernel may be on disk by now, or still on its way there.
  const WarmupReport report = Value(one.Compile({.progress = [&](int64_t done, int64_t, const WarmupItem& item) {
    EXPECT_THAT(item.kernel, HasSubstr("n=1046 "));
    steps.push_back(done);
    return true;
  }}));
  EXPECT_EQ(report.compiled + report.loaded, 1);
  EXPECT_EQ(steps, std::vector<int64_t>{1});
  const KernelStats before = GetKernelStats();
  ASSERT_TRUE(MakeLinear(8, 1046, 1)->Forward(Random({1, 8}, 1)).ok());
  EXPECT_EQ(GetKernelStats().compiled + GetKernelStats().loaded, before.compiled + before.loaded);
}

TEST_F(ManifestTest, PreparesAnyTargetsFolder) {
  WarmupManifest manifest;
  for (const ir::KernelSpec& spec : Specs()) manifest.Add(spec);
  const auto kernels = static_cast<int64_t>(Specs().size());
  for (const IsaLevel level : {IsaLevel::kAvx2, IsaLevel::kAvx512Bf16, IsaLevel::kAmx}) {
    const codegen::Target target = TargetOf(level);
    const ManifestOptions options{.target = target.ToString(), .folder = folder(), .jobs = 3};
    const WarmupReport report = Value(manifest.Compile(options));
    EXPECT_EQ(report.compiled, kernels);
    EXPECT_EQ(report.failed, 0);
    for (const ir::KernelSpec& spec : Specs()) {
      EXPECT_TRUE(Finds(SpecFor(spec, target, MathMode::kNative), target)) << spec.ToString();
    }
    const WarmupReport again = Value(manifest.Compile(options));
    EXPECT_EQ(again.loaded, kernels);
    EXPECT_EQ(again.compiled, 0);
  }
  const auto tile = SpecFor(Specs()[0], TargetOf(IsaLevel::kAmx), MathMode::kNative);
  EXPECT_EQ(tile.product, ir::Product::kTileBf16);
  EXPECT_FALSE(Finds(SpecFor(tile, TargetOf(IsaLevel::kAmx), MathMode::kExact), TargetOf(IsaLevel::kAmx)));
}

TEST_F(ManifestTest, TakesTheRunsSettings) {
  WarmupManifest manifest;
  manifest.Add(Specs()[0]);
  manifest.math = MathMode::kExact;
  const codegen::Target amx = TargetOf(IsaLevel::kAmx);
  EXPECT_EQ(Value(manifest.Compile({.target = "amx", .folder = folder()})).compiled, 1);
  EXPECT_TRUE(Finds(SpecFor(Specs()[0], amx, MathMode::kExact), amx));
  EXPECT_FALSE(Finds(SpecFor(Specs()[0], amx, MathMode::kNative), amx));
  // Xbyak alone, on a machine for which it makes nothing.
  manifest.emitter = "xbyak";
  const WarmupReport report = Value(manifest.Compile({.target = "baseline", .folder = folder()}));
  EXPECT_EQ(report.rejected, 1);
  EXPECT_EQ(report.compiled + report.failed, 0);
  EXPECT_THAT(report.items[0].rejections, ::testing::Contains(HasSubstr("isa_too_old")));
}

TEST_F(ManifestTest, SaysWhatCannotBeDone) {
  WarmupManifest manifest;
  for (const ir::KernelSpec& spec : Specs()) manifest.Add(spec);
  EXPECT_TRUE(absl::IsInvalidArgument(manifest.Compile({.target = "i386", .folder = folder()}).status()));
  std::ofstream(place_ / "file") << "in the way\n";
  const auto no_folder = manifest.Compile({.target = "avx2", .folder = place_ / "file" / "cache"});
  EXPECT_TRUE(absl::IsUnavailable(no_folder.status())) << no_folder.status();
  fs::create_directories(place_ / "open");
  fs::permissions(place_ / "open", fs::perms::all);
  const auto open = manifest.Compile({.target = "avx2", .folder = place_ / "open"});
  EXPECT_TRUE(absl::IsPermissionDenied(open.status())) << open.status();
  const auto cancelled = manifest.Compile(
      {.target = "avx2", .folder = folder(), .progress = [](int64_t, int64_t, const WarmupItem&) { return false; }});
  EXPECT_TRUE(absl::IsCancelled(cancelled.status()));
  const WarmupReport rest = Value(manifest.Compile({.target = "avx2", .folder = folder()}));
  EXPECT_GE(rest.loaded, 1);
  EXPECT_EQ(rest.loaded + rest.compiled, static_cast<int64_t>(Specs().size()));
}

}  // namespace
}  // namespace clikart
