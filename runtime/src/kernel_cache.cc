#include "kernel_cache.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "environment.h"
#include "first_use.h"
#include "prepare_watch.h"
#include "process_hooks.h"
#include "text.h"

namespace clikart {
namespace {

using codegen::Rejection;
using codegen::RejectReason;
using Clock = std::chrono::steady_clock;
using KernelOr = absl::StatusOr<std::shared_ptr<const Kernel>>;

// What an entry holds beside its code: the budget bounds the number of entries too, also of kernels
// without generated code.
constexpr int64_t kEntryBytes = 2048;
// A process that ends waits so long for its kernels to be on disk.
constexpr std::chrono::milliseconds kExitPatience{3000};
// Processes write down what they did so often at most, and at their end.
constexpr std::chrono::seconds kRecordInterval{10};
// Kernels of a run that a manifest can list: far more than models have, few megabytes.
constexpr size_t kMostRecorded = 10000;

std::string Describe(const Rejection& rejection) {
  return absl::StrCat(Text(codegen::Name(rejection.reason)), " (", rejection.detail, ")");
}

// One compilation that others may wait for.
struct Flight {
  std::condition_variable done;
  std::optional<KernelOr> result;
};

}  // namespace

struct KernelCache::Impl {
  struct Entry {
    std::shared_ptr<const Kernel> kernel;
    int64_t hits = 0;
    int64_t unrecorded = 0;                  // of those, and of loads
    std::list<std::string>::iterator place;  // in `order`
  };

  explicit Impl(const KernelCacheOptions& given) : options(given), budget(given.byte_budget) {}

  KernelOr GetOrCompile(const ir::KernelSpec& spec);
  std::shared_ptr<const Kernel> Find(const std::string& key);
  KernelOr Compile(const ir::KernelSpec& spec);
  std::variant<std::shared_ptr<Kernel>, Rejection> TryEmitter(const codegen::Emitter& emitter,
                                                              const ir::KernelSpec& spec);
  std::variant<std::shared_ptr<Kernel>, Rejection> Install(const codegen::EmittedKernel& emitted);
  Rejection Refused(const absl::Status& status);
  std::optional<Rejection> Policy() const;
  void Keep(const std::string& key, std::shared_ptr<const Kernel> kernel);
  void EvictTo(int64_t limit, std::vector<std::shared_ptr<const Kernel>>& dropped);
  void Count(std::string_view reason, std::string_view message);
  void Depart(Entry& entry);
  void Record();
  void BeforeFork();
  void AfterForkInParent();
  void AfterForkInChild();
  static int64_t CostOf(const Kernel& kernel) { return kernel.code_bytes + kEntryBytes; }

  const KernelCacheOptions options;
  // pthread mutexes are what POSIX defines across fork: held by the forking thread while it forks
  // (see Instance), so that the child finds whole maps and can unlock.
  mutable std::mutex mutex;
  absl::flat_hash_map<std::string, Entry> entries;  // by the text of the spec
  absl::flat_hash_map<std::string, std::shared_ptr<Flight>> flights;
  std::list<std::string> order;                // most recently used first
  std::map<std::string, ir::KernelSpec> made;  // ever, by the text of the spec
  absl::btree_map<std::string, int64_t> rejections;
  std::optional<Rejection> policy;  // that executable memory is refused
  std::atomic<bool> refusal_told{false};
  // What is not written down yet, beside the entries' own counts.
  std::vector<KernelStore::Hits> departed;
  cache::Usage unrecorded;
  Clock::time_point recorded = Clock::now();
  int64_t budget, bytes = 0, code_bytes = 0, compiled = 0, loaded = 0, hits = 0;
};

KernelOr KernelCache::Impl::GetOrCompile(const ir::KernelSpec& spec) {
  const std::string key = spec.ToString();
  std::shared_ptr<Flight> flight;
  std::shared_ptr<const Kernel> hit;
  {
    std::unique_lock lock(mutex);
    hit = Find(key);
    if (hit == nullptr) {
      std::shared_ptr<Flight>& slot = flights[key];
      if (slot != nullptr) {
        flight = slot;
        flight->done.wait(lock, [&] { return flight->result.has_value(); });
        if (!flight->result->ok()) return *flight->result;
        ++hits;
        hit = **flight->result;
      } else {
        slot = flight = std::make_shared<Flight>();
      }
    }
  }
  if (hit != nullptr) {
    if (Logs(kLogCache)) Log(kLogCache, absl::StrCat("hit ", hit->signature));
    return hit;
  }
  KernelOr result = Compile(spec);
  std::vector<std::shared_ptr<const Kernel>> dropped;  // their code is unmapped after the lock
  bool due = false;
  {
    const std::lock_guard lock(mutex);
    if (result.ok()) {
      if ((*result)->loaded) {
        ++loaded;
      } else if ((*result)->code != nullptr) {
        ++compiled;
      }
      PrepareWatch::TellKernel(**result);
      if (made.size() < kMostRecorded) made.emplace(key, spec);
      if (options.keep) Keep(key, *result);
      EvictTo(budget, dropped);
    }
    flight->result = result;
    flights.erase(key);
    due = Clock::now() - recorded > kRecordInterval;
  }
  flight->done.notify_all();
  if (due) Record();
  return result;
}

// Under the lock: what is kept, counted as a hit; null where nothing is.
std::shared_ptr<const Kernel> KernelCache::Impl::Find(const std::string& key) {
  const auto found = entries.find(key);
  if (found == entries.end()) return nullptr;
  ++hits;
  ++found->second.hits;
  ++found->second.unrecorded;
  order.splice(order.begin(), order, found->second.place);
  return found->second.kernel;
}

KernelOr KernelCache::Impl::Compile(const ir::KernelSpec& spec) {
  if (absl::Status status = spec.Verify(); !status.ok()) return status;
  std::vector<Rejection> rejections_before;
  bool fell_back = false;
  for (const codegen::Emitter* emitter : options.emitters) {
    const Clock::time_point start = Clock::now();
    const bool last = emitter == options.emitters.back();
    if (options.emitter != "auto" && options.emitter != emitter->name() && !last) {
      rejections_before.push_back({RejectReason::kDisabled, absl::StrCat("CLIKART_EMITTER is ", options.emitter)});
      continue;
    }
    auto answer = TryEmitter(*emitter, spec);
    if (const Rejection* rejection = std::get_if<Rejection>(&answer)) {
      Count(codegen::Name(rejection->reason),
            absl::StrCat(Text(emitter->name()), " rejects ", spec.ToString(), ": ", Describe(*rejection)));
      rejections_before.push_back(*rejection);
      fell_back = true;
      continue;
    }
    if (fell_back && options.strict) break;
    std::shared_ptr<Kernel> kernel = std::get<std::shared_ptr<Kernel>>(std::move(answer));
    kernel->rejections = std::move(rejections_before);
    Log(kernel->loaded ? kLogCache : kLogKernels,
        absl::StrFormat("%s %s: %d bytes in %.3f ms", kernel->loaded ? "loaded" : "compiled", kernel->signature,
                        kernel->code_bytes, std::chrono::duration<double, std::milli>(Clock::now() - start).count()));
    return std::shared_ptr<const Kernel>(std::move(kernel));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      options.strict ? "CLIKART_STRICT=1 and no first-choice kernel serves " : "no emitter serves ", spec.ToString(),
      ": ", absl::StrJoin(rejections_before, "; ", [](std::string* out, const Rejection& rejection) {
        absl::StrAppend(out, Describe(rejection));
      })));
}

std::variant<std::shared_ptr<Kernel>, Rejection> KernelCache::Impl::TryEmitter(const codegen::Emitter& emitter,
                                                                               const ir::KernelSpec& spec) {
  if (emitter.needs_executable_memory()) {
    if (std::optional<Rejection> refused = Policy()) return *std::move(refused);
  }
  const bool on_disk = options.store != nullptr && emitter.needs_executable_memory();
  if (on_disk) {
    if (const auto stored = options.store->Load(spec, options.target, emitter.name())) {
      auto answer = Install(stored->kernel);
      if (auto* kernel = std::get_if<std::shared_ptr<Kernel>>(&answer)) {
        (*kernel)->loaded = true;
        (*kernel)->jit_seconds = stored->jit_seconds;
      }
      return answer;
    }
  }
  const Clock::time_point start = Clock::now();
  auto answer = emitter.Emit(spec, options.target);
  if (Rejection* rejection = std::get_if<Rejection>(&answer)) return std::move(*rejection);
  const codegen::EmittedKernel& emitted = std::get<codegen::EmittedKernel>(answer);
  auto installed = Install(emitted);
  if (auto* kernel = std::get_if<std::shared_ptr<Kernel>>(&installed)) {
    (*kernel)->jit_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (on_disk) options.store->Save(emitted, options.target, (*kernel)->jit_seconds);
  }
  return installed;
}

std::variant<std::shared_ptr<Kernel>, Rejection> KernelCache::Impl::Install(const codegen::EmittedKernel& emitted) {
  auto kernel = std::make_shared<Kernel>();
  if (!emitted.code.empty()) {
    auto block = options.make_executable(emitted.code);
    if (!block.ok()) return Refused(block.status());
    kernel->code = *std::move(block);
    for (size_t i = 0; i < emitted.entry_offsets.size(); ++i) {
      const int32_t offset = emitted.entry_offsets[i];
      if (offset >= 0) kernel->image.entries[i] = kernel->code->data() + offset;
    }
  }
  kernel->code_bytes = static_cast<int64_t>(emitted.code.size());
  kernel->emitter = emitted.emitter;
  kernel->isa = emitted.isa;
  kernel->signature =
      absl::StrCat(emitted.spec.ToString(), "@", Text(codegen::Name(emitted.isa)), "/", emitted.emitter);
  kernel->image.spec = emitted.spec;
  kernel->image.schedule = emitted.schedule;
  kernel->image.run = emitted.run;
  if (options.listing.any() && kernel->code != nullptr) {
    kernel->listing = ListCode(options.listing, kernel->signature, emitted, kernel->code->data());
  }
  return kernel;
}

// A policy stays for the life of the process: no more code is generated for it to refuse. Memory may be had later.
Rejection KernelCache::Impl::Refused(const absl::Status& status) {
  const std::string message(status.message());
  if (!refusal_told.exchange(true)) Log(kLogWarning, absl::StrCat("warning: ", message, "; kernels are portable C++"));
  Rejection rejection{RejectReason::kExecutableMemory, message};
  if (absl::IsPermissionDenied(status)) {
    const std::lock_guard lock(mutex);
    policy = rejection;
  }
  return rejection;
}

std::optional<Rejection> KernelCache::Impl::Policy() const {
  const std::lock_guard lock(mutex);
  return policy;
}

void KernelCache::Impl::Keep(const std::string& key, std::shared_ptr<const Kernel> kernel) {
  bytes += CostOf(*kernel);
  code_bytes += kernel->code_bytes;
  order.push_front(key);
  const int64_t loads = kernel->loaded ? 1 : 0;
  entries[key] = Entry{std::move(kernel), 0, loads, order.begin()};
}

void KernelCache::Impl::EvictTo(int64_t limit, std::vector<std::shared_ptr<const Kernel>>& dropped) {
  while (bytes > limit && !order.empty()) {
    const auto found = entries.find(order.back());
    bytes -= CostOf(*found->second.kernel);
    code_bytes -= found->second.kernel->code_bytes;
    Depart(found->second);
    dropped.push_back(std::move(found->second.kernel));
    entries.erase(found);
    order.pop_back();
  }
}

void KernelCache::Impl::Count(std::string_view reason, std::string_view message) {
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    first = ++rejections[std::string(reason)] == 1;
    cache::Usage::Rejection& rejection = unrecorded.rejections[std::string(reason)];
    ++rejection.count;
    if (rejection.example.empty()) rejection.example = message;
  }
  Log(first ? kLogKernels : kLogCache, message);
}

// Under the lock: keeps the count of hits that is not written down yet.
void KernelCache::Impl::Depart(Entry& entry) {
  if (options.store == nullptr || entry.unrecorded == 0 || entry.kernel->code == nullptr) return;
  departed.push_back({entry.kernel->image.spec, entry.kernel->emitter, std::exchange(entry.unrecorded, 0)});
}

void KernelCache::Impl::Record() {
  if (options.store == nullptr) return;
  std::vector<KernelStore::Hits> counts;
  cache::Usage usage;
  {
    const std::lock_guard lock(mutex);
    for (auto& [key, entry] : entries) Depart(entry);
    std::swap(counts, departed);
    std::swap(usage, unrecorded);
    recorded = Clock::now();
  }
  options.store->Record(counts, options.target, std::move(usage));
}

void KernelCache::Impl::BeforeFork() {
  if (options.store != nullptr) options.store->writer().BeforeFork();
  mutex.lock();
}

void KernelCache::Impl::AfterForkInParent() {
  mutex.unlock();
  if (options.store != nullptr) options.store->writer().AfterForkInParent();
}

void KernelCache::Impl::AfterForkInChild() {
  // The threads that were compiling are not here: their signatures start anew. Their flights stay
  // allocated, for a condition variable with waiters must not be destroyed.
  for (auto& [key, flight] : flights) new std::shared_ptr<Flight>(std::move(flight));
  flights.clear();
  // What the parent counted is the parent's to write down.
  for (auto& [key, entry] : entries) entry.unrecorded = 0;
  departed.clear();
  unrecorded = {};
  mutex.unlock();
  if (options.store != nullptr) options.store->writer().AfterForkInChild();
}

KernelCache::KernelCache(const KernelCacheOptions& options) : impl_(std::make_unique<Impl>(options)) {}
KernelCache::~KernelCache() = default;

namespace {

[[maybe_unused]] const int g_hooks = InstallProcessHooks();
constinit FirstUse<KernelCache> g_instance;

}  // namespace

KernelCache& KernelCache::Instance() {
  return g_instance.Get([] {
    KernelCacheOptions options;
    options.emitters = codegen::Emitters();
    options.target = HostTarget();
    if (const auto& environment = Environment::Get(); environment.ok()) {
      options.emitter = environment->emitter;
      options.strict = environment->strict;
      options.keep = environment->cache != Environment::Cache::kOff;
      options.listing = environment->listing;
      if (options.listing.perf_map) options.make_executable = &MakeExecutableForPerfMap;
      options.byte_budget = environment->cache_bytes;
      options.store = KernelStore::Create(*environment);
    }
    auto* made = new KernelCache(options);
    if (options.store != nullptr) std::atexit([] { Instance().Flush(kExitPatience); });
    return made;
  });
}

void KernelCache::BeforeFork() {
  if (const KernelCache* cache = g_instance.Peek()) cache->impl_->BeforeFork();
}

void KernelCache::AfterForkInParent() {
  if (const KernelCache* cache = g_instance.Peek()) cache->impl_->AfterForkInParent();
}

void KernelCache::AfterForkInChild() {
  if (const KernelCache* cache = g_instance.Peek()) cache->impl_->AfterForkInChild();
}

KernelOr KernelCache::GetOrCompile(const ir::KernelSpec& spec) {
  if (const absl::Status& status = CheckEnvironment(); !status.ok()) return status;
  return impl_->GetOrCompile(spec);
}

void KernelCache::CountRejection(std::string_view reason, std::string_view message) { impl_->Count(reason, message); }

std::vector<KernelInfo> KernelCache::List() const {
  std::vector<KernelInfo> list;
  const std::lock_guard lock(impl_->mutex);
  list.reserve(impl_->order.size());
  for (const std::string& key : impl_->order) {
    const Impl::Entry& entry = impl_->entries.at(key);
    const Kernel& kernel = *entry.kernel;
    list.push_back({kernel.signature, kernel.emitter, std::string(codegen::Name(kernel.isa)), kernel.code_bytes,
                    kernel.jit_seconds, entry.hits, kernel.loaded});
  }
  return list;
}

std::vector<ir::KernelSpec> KernelCache::Made() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<ir::KernelSpec> specs;
  for (const auto& [key, spec] : impl_->made) specs.push_back(spec);
  return specs;
}

KernelStats KernelCache::Stats() const {
  const std::lock_guard lock(impl_->mutex);
  KernelStats stats;
  stats.entries = static_cast<int64_t>(impl_->entries.size());
  stats.code_bytes = impl_->code_bytes;
  stats.compiled = impl_->compiled;
  stats.loaded = impl_->loaded;
  if (const auto& store = impl_->options.store; store != nullptr) {
    stats.stored = store->stored();
    stats.quarantined = store->quarantined();
  }
  stats.hits = impl_->hits;
  stats.rejections = impl_->rejections;
  return stats;
}

void KernelCache::Flush(std::chrono::milliseconds patience) {
  impl_->Record();
  if (impl_->options.store != nullptr && !impl_->options.store->Flush(patience)) {
    Log(kLogKernels, "some kernels are not on disk yet");
  }
}

void KernelCache::Clear() {
  std::vector<std::shared_ptr<const Kernel>> dropped;
  const std::lock_guard lock(impl_->mutex);
  impl_->EvictTo(0, dropped);
}

void KernelCache::SetByteBudget(int64_t bytes) {
  std::vector<std::shared_ptr<const Kernel>> dropped;
  const std::lock_guard lock(impl_->mutex);
  impl_->budget = bytes;
  impl_->EvictTo(bytes, dropped);
}

std::vector<KernelInfo> ListKernels() { return KernelCache::Instance().List(); }
KernelStats GetKernelStats() { return KernelCache::Instance().Stats(); }
void ClearKernels() { KernelCache::Instance().Clear(); }

}  // namespace clikart
