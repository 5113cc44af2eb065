#include "kernel_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "clikart/cache/object_file.h"
#include "clikart/codegen/emitter.h"
#include "environment.h"
#include "fork_testing.h"
#include "kernel_cache.h"
#include "kernel_record.h"

namespace clikart {
namespace {

namespace fs = std::filesystem;
using codegen::EmittedKernel;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::chrono::milliseconds kPatience{20000};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (fs::temp_directory_path() / "clikart-store-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

ir::KernelSpec Spec(int64_t n) {
  ir::KernelSpec spec;
  spec.n = n;
  spec.k = 4;
  return spec;
}

// Emits code that returns what it was told, and counts.
class CountingEmitter : public codegen::Emitter {
 public:
  std::string_view name() const override { return "counting"; }
  bool needs_executable_memory() const override { return true; }
  std::variant<EmittedKernel, codegen::Rejection> Emit(const ir::KernelSpec& spec,
                                                       const codegen::Target& target) const override {
    ++emitted;
    EmittedKernel kernel;
    kernel.spec = spec;
    kernel.emitter = name();
    kernel.isa = target.level();
    kernel.schedule.row_block = spec.n;
    kernel.code = {0xb8, static_cast<uint8_t>(spec.n), static_cast<uint8_t>(spec.n >> 8), 0, 0, 0xc3};
    kernel.instruction_bytes = 6;
    kernel.entry_offsets.fill(-1);
    kernel.entry_offsets[2] = 0;
    kernel.run = codegen::Drivers()[0].run;
    return kernel;
  }
  mutable std::atomic<int> emitted{0};
};

int Call(const Kernel& kernel) { return reinterpret_cast<int (*)()>(const_cast<void*>(kernel.image.entries[2]))(); }

class KernelStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return place_.path() / "cache"; }

  KernelStoreOptions StoreOptions() const { return {.folders = {{.path = path()}}}; }
  // A cache as another process would have it.
  std::unique_ptr<KernelCache> Cache(const KernelStoreOptions& store) {
    KernelCacheOptions options;
    options.emitters = emitters_;
    options.target = target_;
    options.store = std::make_shared<KernelStore>(store);
    return std::make_unique<KernelCache>(options);
  }
  std::unique_ptr<KernelCache> Cache() { return Cache(StoreOptions()); }
  // All that `n` kernels need, compiled or not; then on disk.
  void Fill(int64_t n) {
    const auto cache = Cache();
    for (int64_t i = 1; i <= n; ++i) EXPECT_EQ(Call(**cache->GetOrCompile(Spec(i))), i);
    cache->Flush(kPatience);
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& item : fs::directory_iterator(fs::path(path()) / cache::kFormatFolder)) {
      if (item.path().extension() == ".o") files.push_back(item.path());
    }
    return files;
  }

  TemporaryFolder place_;
  CountingEmitter emitter_;
  std::vector<const codegen::Emitter*> emitters_ = {&emitter_};
  codegen::Target target_ = codegen::TargetOf(codegen::IsaLevel::kAvx2);
};

TEST_F(KernelStoreTest, ASecondProcessCompilesNothing) {
  Fill(20);
  EXPECT_EQ(emitter_.emitted, 20);
  EXPECT_THAT(Files(), SizeIs(20));
  const auto cache = Cache();
  for (int64_t i = 1; i <= 20; ++i) {
    const auto kernel = *cache->GetOrCompile(Spec(i));
    EXPECT_EQ(Call(*kernel), i);
    EXPECT_TRUE(kernel->loaded);
    EXPECT_EQ(kernel->image.spec, Spec(i));
    EXPECT_EQ(kernel->image.schedule.row_block, i);
    EXPECT_EQ(kernel->image.run, codegen::Drivers()[0].run);
    EXPECT_EQ(kernel->signature, Spec(i).ToString() + "@avx2/counting");
    EXPECT_GT(kernel->jit_seconds, 0);
    EXPECT_EQ(*cache->GetOrCompile(Spec(i)), kernel);  // from memory
  }
  EXPECT_EQ(emitter_.emitted, 20);
  const KernelStats stats = cache->Stats();
  EXPECT_EQ(stats.compiled, 0);
  EXPECT_EQ(stats.loaded, 20);
  EXPECT_EQ(stats.hits, 20);
  EXPECT_EQ(stats.stored, 0);
  EXPECT_EQ(stats.entries, 20);
  EXPECT_TRUE(cache->List()[0].loaded);
}

TEST_F(KernelStoreTest, CountsWhatItStores) {
  const auto cache = Cache();
  for (int64_t i = 1; i <= 40; ++i) ASSERT_TRUE(cache->GetOrCompile(Spec(i)).ok());
  cache->Flush(kPatience);
  EXPECT_EQ(cache->Stats().stored, 40);
  EXPECT_EQ(cache->Stats().compiled, 40);
  EXPECT_EQ(cache->Stats().loaded, 0);
  cache->Clear();
  ASSERT_TRUE(cache->GetOrCompile(Spec(1)).ok());
  EXPECT_EQ(cache->Stats().loaded, 1);
}

TEST_F(KernelStoreTest, HitsAndRejectionsAreWrittenDown) {
  Fill(2);
  {
    const auto cache = Cache();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache->GetOrCompile(Spec(1)).ok());
    cache->CountRejection("mixed_inputs", "the parts run side by side");
    cache->Flush(kPatience);
    cache->Flush(kPatience);  // nothing is counted twice
    ASSERT_TRUE(cache->GetOrCompile(Spec(1)).ok());
    ASSERT_TRUE(cache->GetOrCompile(Spec(2)).ok());
    cache->Clear();  // nor lost with what is dropped
    cache->Flush(kPatience);
  }
  const cache::Usage usage = *cache::Folder({.path = path()}).ReadUsage();
  const auto name = [&](int64_t n) { return KeyOf(Spec(n), target_, "counting", BuildIdentity()).Name(); };
  EXPECT_EQ(usage.hits, (std::map<std::string, int64_t>{{name(1), 4}, {name(2), 1}}));
  ASSERT_EQ(usage.rejections.size(), 1u);
  EXPECT_EQ(usage.rejections.at("mixed_inputs").count, 1);
  EXPECT_THAT(usage.rejections.at("mixed_inputs").example, "the parts run side by side");
}

TEST_F(KernelStoreTest, OtherBuildsTargetsAndEmittersHaveTheirOwn) {
  Fill(1);
  KernelStoreOptions other_build = StoreOptions();
  other_build.build = "other";
  const auto run = [&](const KernelStoreOptions& store) {
    const auto cache = Cache(store);
    EXPECT_EQ(Call(**cache->GetOrCompile(Spec(1))), 1);
    cache->Flush(kPatience);
    return static_cast<int>(cache->Stats().compiled);
  };
  EXPECT_EQ(run(other_build), 1);
  EXPECT_THAT(Files(), SizeIs(2));
  target_ = codegen::TargetOf(codegen::IsaLevel::kAvx512);
  EXPECT_EQ(run(StoreOptions()), 1);
  EXPECT_THAT(Files(), SizeIs(3));
  // All of them keep working side by side, without a file written twice.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(StoreOptions()), 0);
    EXPECT_EQ(run(other_build), i == 0 ? 1 : 0);  // its first time with the other target
    target_ = codegen::TargetOf(i % 2 == 0 ? codegen::IsaLevel::kAvx2 : codegen::IsaLevel::kAvx512);
  }
  EXPECT_THAT(Files(), SizeIs(4));
}

TEST_F(KernelStoreTest, BadFilesAreToldOfOnceAndBuiltAgain) {
  Fill(3);
  for (const fs::path& file : Files()) fs::resize_file(file, 100);
  ::testing::internal::CaptureStderr();
  Fill(3);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, AllOf(HasSubstr("clikart: warning: the cached kernel "), HasSubstr("generated again")));
  if (Environment::Get().ok() && Environment::Get()->verbose == 0) {
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  }
  EXPECT_EQ(emitter_.emitted, 6);
  ::testing::internal::CaptureStderr();
  Fill(3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(emitter_.emitted, 6);
}

TEST_F(KernelStoreTest, QuarantinedAreCounted) {
  Fill(2);
  for (const fs::path& file : Files()) fs::resize_file(file, 1);
  const auto cache = Cache();
  EXPECT_EQ(Call(**cache->GetOrCompile(Spec(1))), 1);
  EXPECT_EQ(Call(**cache->GetOrCompile(Spec(2))), 2);
  EXPECT_EQ(cache->Stats().quarantined, 2);
  EXPECT_EQ(cache->Stats().compiled, 2);
}

TEST_F(KernelStoreTest, AFolderOpenToOthersIsToldOfOnce) {
  Fill(2);
  ASSERT_EQ(chmod(path().c_str(), 0777), 0);
  ::testing::internal::CaptureStderr();
  Fill(3);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, AllOf(HasSubstr(path()), HasSubstr("chmod go-w")));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_EQ(emitter_.emitted, 5);
}

TEST_F(KernelStoreTest, NoPlaceToWrite) {
  std::ofstream(place_.path() / "file") << "";
  KernelStoreOptions options;
  for (const std::string& bad : {std::string("/proc/clikart"), (place_.path() / "file/cache").string()}) {
    options.folders = {{.path = bad}};
    const auto cache = Cache(options);
    EXPECT_EQ(Call(**cache->GetOrCompile(Spec(7))), 7);
    cache->Flush(kPatience);
    EXPECT_EQ(cache->Stats().stored, 0);
  }
  const auto without = Cache(KernelStoreOptions{});
  EXPECT_EQ(Call(**without->GetOrCompile(Spec(7))), 7);
}

TEST_F(KernelStoreTest, ASystemFolderLiesUnderTheUsers) {
  Fill(2);
  const std::string system = place_.path() / "system";
  fs::rename(path(), system);
  KernelStoreOptions options;
  options.folders = {{.path = path()}, {.path = system, .access = cache::Access::kReadOnly}};
  const auto cache = Cache(options);
  for (int64_t i = 1; i <= 3; ++i) EXPECT_EQ(Call(**cache->GetOrCompile(Spec(i))), i);
  cache->Flush(kPatience);
  EXPECT_EQ(cache->Stats().loaded, 2);
  EXPECT_EQ(cache->Stats().stored, 1);
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(KernelStoreTest, SettingsChooseTheFolders) {
  Environment environment;
  environment.cache = Environment::Cache::kMemory;
  EXPECT_EQ(KernelStore::Create(environment), nullptr);
  environment.cache = Environment::Cache::kOff;
  EXPECT_EQ(KernelStore::Create(environment), nullptr);
  environment.cache = Environment::Cache::kDisk;  // and no home folder
  environment.cache_system_dir = path();
  const auto store = KernelStore::Create(environment);
  store->Save(std::get<EmittedKernel>(emitter_.Emit(Spec(1), target_)), target_, 0.1);
  EXPECT_TRUE(store->Flush(kPatience));
  EXPECT_EQ(store->stored(), 0);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(KernelStoreTest, ManyThreadsAndAForkedChild) {
  CLIKART_SKIP_FORK_UNDER_SANITIZERS();
  KernelStore store(StoreOptions());
  const auto save = [&](int64_t n) {
    store.Save(std::get<EmittedKernel>(emitter_.Emit(Spec(n), target_)), target_, 0.1);
  };
  for (int64_t n = 1; n <= 30; ++n) save(n);
  store.writer().BeforeFork();
  const int code = ExitCodeOfChild([&] {
    store.writer().AfterForkInChild();
    save(100);
    return store.Flush(kPatience) && store.Load(Spec(100), target_, "counting") ? 0 : 1;
  });
  store.writer().AfterForkInParent();
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(store.Flush(kPatience));
  EXPECT_EQ(store.stored(), 30);
  EXPECT_THAT(Files(), SizeIs(31));
}

TEST_F(KernelStoreTest, ThreadsShareAFolder) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto cache = Cache();
      for (int i = 0; i < 30; ++i) {
        const int64_t n = 1 + (7 * t + i) % 30;
        ASSERT_EQ(Call(**cache->GetOrCompile(Spec(n))), n);
        if (i % 10 == 0) cache->Clear();
      }
      cache->Flush(kPatience);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Files(), SizeIs(30));
}

// Every emitter's kernels are worth keeping only where their driver has a name and their code comes back.
TEST(KernelRecordTest, EveryEmittersKernelsComeBack) {
  const codegen::Target& target = HostTarget();
  for (const codegen::Emitter* emitter : codegen::Emitters()) {
    if (!emitter->needs_executable_memory()) continue;
    for (const ir::Contraction contraction :
         {ir::Contraction::kFloat, ir::Contraction::kDepthwise, ir::Contraction::kInteger}) {
      ir::KernelSpec spec = Spec(40);
      spec.contraction = contraction;
      if (contraction == ir::Contraction::kInteger) {
        spec.x = spec.w = ir::DType::kInt8;
        spec.interleave = 4;
      }
      if (contraction == ir::Contraction::kDepthwise) {
        spec.access = ir::Access::kIndirect;
        spec.k = 1;
        spec.taps = 9;
      }
      auto answer = emitter->Emit(spec, target);
      const auto* kernel = std::get_if<EmittedKernel>(&answer);
      if (kernel == nullptr) continue;  // this CPU, or this build, lacks what it needs
      const auto entry = ToEntry(*kernel, KeyOf(spec, target, emitter->name(), "b"), codegen::Drivers(), 0.25);
      ASSERT_TRUE(entry.has_value()) << emitter->name() << ": its driver has no name";
      EXPECT_EQ(entry->jit_nanoseconds, 250'000'000);
      const auto back = FromEntry(*entry, spec, codegen::Drivers());
      ASSERT_TRUE(back.has_value());
      EXPECT_EQ(back->spec, spec);
      EXPECT_EQ(back->schedule, kernel->schedule);
      EXPECT_EQ(back->emitter, kernel->emitter);
      EXPECT_EQ(back->isa, kernel->isa);
      EXPECT_EQ(back->code, kernel->code);
      EXPECT_EQ(back->instruction_bytes, kernel->instruction_bytes);
      EXPECT_EQ(back->entry_offsets, kernel->entry_offsets);
      EXPECT_EQ(back->run, kernel->run);
      EXPECT_EQ(back->loops.size(), kernel->loops.size());
      const auto object = cache::Serialize(*entry);
      ASSERT_TRUE(object.ok()) << emitter->name() << ": " << object.status();
      EXPECT_EQ(*cache::Parse(*object), *entry);
    }
  }
}

TEST(KernelRecordTest, WhatThisBuildDoesNotKnow) {
  CountingEmitter emitter;
  const codegen::Target target = codegen::TargetOf(codegen::IsaLevel::kAvx2);
  auto kernel = std::get<EmittedKernel>(emitter.Emit(Spec(4), target));
  const auto good = *ToEntry(kernel, KeyOf(Spec(4), target, "counting", "b"), codegen::Drivers(), 0);
  EXPECT_TRUE(FromEntry(good, Spec(4), codegen::Drivers()).has_value());
  const auto refused = [&](auto change) {
    cache::Entry entry = good;
    change(entry);
    return !FromEntry(entry, Spec(4), codegen::Drivers()).has_value();
  };
  EXPECT_TRUE(refused([](cache::Entry& e) { e.driver = "other"; }));
  EXPECT_TRUE(refused([](cache::Entry& e) { e.isa = "avx99"; }));
  EXPECT_TRUE(refused([](cache::Entry& e) { e.schedule = "row_block=4"; }));
  EXPECT_TRUE(refused([](cache::Entry& e) { e.schedule.back() = 'x'; }));
  EXPECT_TRUE(refused([](cache::Entry& e) { e.entry_points[0].number = codegen::kMaxEntries; }));
  kernel.run = nullptr;
  EXPECT_FALSE(ToEntry(kernel, good.key, codegen::Drivers(), 0).has_value());
  kernel.code.clear();
  EXPECT_FALSE(ToEntry(kernel, good.key, codegen::Drivers(), 0).has_value());
}

TEST(BuildIdentityTest, IsADigest) {
  EXPECT_EQ(BuildIdentity().size(), 64u);
  EXPECT_EQ(BuildIdentity().find_first_not_of("0123456789abcdef"), std::string_view::npos);
}

}  // namespace
}  // namespace clikart
