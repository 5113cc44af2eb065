#include "environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "clikart/runtime.h"

namespace clikart {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, std::string> variables;

const char* FakeGetEnv(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

absl::StatusOr<Environment> With(std::map<std::string, std::string> values) {
  variables = std::move(values);
  return Environment::Parse(FakeGetEnv);
}

TEST(EnvironmentTest, Defaults) {
  const auto environment = With({{"HOME", "/home/me"}});
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->cache, Environment::Cache::kDisk);
  EXPECT_EQ(environment->cache_dir, "/home/me/.cache/clikart");
  EXPECT_EQ(environment->cache_system_dir, "/var/cache/clikart");
  EXPECT_EQ(environment->cache_bytes, 64 << 20);
  EXPECT_EQ(environment->cache_disk_bytes, 256 << 20);
  EXPECT_EQ(environment->max_isa, codegen::kWidestIsa);
  EXPECT_FALSE(environment->max_isa_given);
  EXPECT_EQ(environment->emitter, "auto");
  EXPECT_EQ(environment->num_threads, std::nullopt);
  EXPECT_EQ(environment->verbose, 0);
  EXPECT_EQ(environment->math, codegen::MathMode::kNative);
  EXPECT_FALSE(environment->strict);
  EXPECT_EQ(environment->verbose_file, "");
  EXPECT_FALSE(environment->listing.any());
  EXPECT_EQ(environment->listing.folder, "/tmp");
  EXPECT_EQ(With({})->cache_dir, "");
  EXPECT_EQ(With({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache_dir, "/x/clikart");
}

TEST(EnvironmentTest, EverySetting) {
  const auto environment = With({{"CLIKART_CACHE", "memory"},
                                 {"CLIKART_CACHE_DIR", "/some/where"},
                                 {"CLIKART_CACHE_SYSTEM_DIR", "/over/all"},
                                 {"CLIKART_CACHE_SIZE", "3M"},
                                 {"CLIKART_CACHE_DISK_SIZE", "5G"},
                                 {"CLIKART_OUTPUT_CACHE_SIZE", "1M"},
                                 {"CLIKART_MAX_ISA", "baseline"},
                                 {"CLIKART_EMITTER", "xbyak"},
                                 {"CLIKART_NUM_THREADS", "12"},
                                 {"CLIKART_VERBOSE", "2"},
                                 {"CLIKART_MATH", "exact"},
                                 {"CLIKART_STRICT", "1"},
                                 {"CLIKART_VERBOSE_FILE", "/var/log/clikart"},
                                 {"CLIKART_PERF_MAP", "gdb,jitdump"},
                                 {"CLIKART_PERF_DIR", "/perf"}});
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->cache, Environment::Cache::kMemory);
  EXPECT_EQ(environment->cache_dir, "/some/where");
  EXPECT_EQ(environment->cache_system_dir, "/over/all");
  EXPECT_EQ(environment->cache_bytes, 3 << 20);
  EXPECT_EQ(environment->cache_disk_bytes, int64_t{5} << 30);
  EXPECT_EQ(environment->output_cache_bytes, 1 << 20);
  EXPECT_EQ(environment->max_isa, codegen::IsaLevel::kBaseline);
  EXPECT_TRUE(environment->max_isa_given);
  EXPECT_EQ(environment->emitter, "xbyak");
  EXPECT_EQ(environment->num_threads, 12);
  EXPECT_EQ(environment->verbose, 2);
  EXPECT_EQ(environment->math, codegen::MathMode::kExact);
  EXPECT_TRUE(environment->strict);
  EXPECT_EQ(environment->verbose_file, "/var/log/clikart");
  EXPECT_FALSE(environment->listing.perf_map);
  EXPECT_TRUE(environment->listing.jitdump && environment->listing.gdb);
  EXPECT_EQ(environment->listing.folder, "/perf");
  EXPECT_TRUE(With({{"CLIKART_PERF_MAP", "map"}})->listing.perf_map);
  EXPECT_FALSE(With({{"CLIKART_PERF_MAP", "off"}})->listing.any());
  EXPECT_EQ(With({{"TMPDIR", "/elsewhere"}})->listing.folder, "/elsewhere");
  EXPECT_EQ(With({{"CLIKART_VERBOSE_FILE", "x.log"}})->verbose_file,
            (std::filesystem::current_path() / "x.log").string());
  EXPECT_EQ(With({{"CLIKART_CACHE", "off"}})->cache, Environment::Cache::kOff);
  EXPECT_EQ(With({{"CLIKART_CACHE_SIZE", "123"}})->cache_bytes, 123);
  EXPECT_EQ(With({{"CLIKART_CACHE_SIZE", "2G"}})->cache_bytes, int64_t{2} << 30);
  EXPECT_EQ(With({{"CLIKART_CACHE_SIZE", "7K"}})->cache_bytes, 7 << 10);
}

TEST(EnvironmentTest, EmptyIsUnset) {
  EXPECT_TRUE(With({{"CLIKART_CACHE", ""}, {"CLIKART_MAX_ISA", ""}, {"CLIKART_NUM_THREADS", ""}}).ok());
}

TEST(EnvironmentTest, BadValuesNameTheVariableAndTheGoodOnes) {
  const struct {
    const char *name, *value, *expected;
  } cases[] = {
      {"CLIKART_CACHE", "on", "off, memory, disk"},
      {"CLIKART_CACHE", "disk ", "off, memory, disk"},
      {"CLIKART_CACHE_SIZE", "64MB", "K, M or G"},
      {"CLIKART_CACHE_SIZE", "-1", "K, M or G"},
      {"CLIKART_CACHE_DISK_SIZE", "1T", "K, M or G"},
      {"CLIKART_CACHE_SIZE", "M", "K, M or G"},
      {"CLIKART_OUTPUT_CACHE_SIZE", "some", "K, M or G"},
      {"CLIKART_CACHE_SIZE", "99999999999G", "K, M or G"},
      {"CLIKART_CACHE_SIZE", " 5", "K, M or G"},
      {"CLIKART_MAX_ISA", "avx99", "baseline"},
      {"CLIKART_MAX_ISA", "avx2 ", "avx2"},
      {"CLIKART_EMITTER", "gcc", "auto, xbyak"},
      {"CLIKART_NUM_THREADS", "two", "0 (automatic)"},
      {"CLIKART_NUM_THREADS", "-2", "0 (automatic)"},
      {"CLIKART_NUM_THREADS", "4K", "0 (automatic)"},
      {"CLIKART_NUM_THREADS", "100000", "4096"},
      {"CLIKART_VERBOSE", "loud", "0, 1, 2, 3"},
      {"CLIKART_MATH", "Exact", "native, exact"},
      {"CLIKART_STRICT", "yes", "0, 1"},
      {"CLIKART_PERF_MAP", "1", "map, jitdump, gdb"},
      {"CLIKART_PERF_MAP", "map,off", "map, jitdump, gdb"},
      {"CLIKART_PERF_MAP", "map,", "map, jitdump, gdb"},
  };
  for (const auto& bad : cases) {
    const auto environment = With({{bad.name, bad.value}});
    ASSERT_FALSE(environment.ok()) << bad.name << "=" << bad.value;
    EXPECT_EQ(environment.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(environment.status().message()),
                AllOf(HasSubstr(bad.name), HasSubstr(absl::StrCat("\"", bad.value, "\"")), HasSubstr(bad.expected)));
  }
}

TEST(CpuInfoTest, SaysWhatIsUsed) {
  const CpuInfo info = GetCpuInfo();
  EXPECT_EQ(info.vendor.size(), 12u);
  EXPECT_EQ(info.isa, codegen::Name(HostTarget().level()));
  EXPECT_GE(info.logical_cpus, info.usable_cpus);
  EXPECT_GE(info.usable_cpus, 1);
  EXPECT_EQ(info.threads, GetNumThreads());
  EXPECT_THAT(info.features, ::testing::Contains("sse3"));
  if (HostTarget().Has(codegen::Feature::kAvx2)) {
    EXPECT_THAT(info.features, ::testing::IsSupersetOf({"avx2", "fma", "f16c"}));
  }
}

}  // namespace
}  // namespace clikart
