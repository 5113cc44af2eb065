#include "environment.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clikart/codegen/emitter.h"
#include "clikart/runtime.h"
#include "first_use.h"
#include "text.h"

namespace clikart {
namespace {

using GetEnv = const char* (*)(const char*);

// Reads the settings one by one and keeps the first error.
class Reader {
 public:
  explicit Reader(GetEnv getenv) : getenv_(getenv) {}

  // The value of CLIKART_<name>; empty when unset.
  std::string Value(std::string_view name) const {
    const char* value = getenv_(absl::StrCat("CLIKART_", Text(name)).c_str());
    return value == nullptr ? std::string() : std::string(value);
  }

  // One of `values`, stored as its index by `store`.
  template <typename Store>
  void Choice(std::string_view name, const std::vector<std::string>& values, Store store) {
    const std::string value = Value(name);
    if (value.empty()) return;
    for (size_t i = 0; i < values.size(); ++i) {
      if (value == values[i]) return store(i);
    }
    Fail(name, value, absl::StrCat("one of ", absl::StrJoin(values, ", ")));
  }

  void Flag(std::string_view name, bool& flag) {
    Choice(name, {"0", "1"}, [&](size_t i) { flag = i == 1; });
  }

  void Bytes(std::string_view name, int64_t& out) {
    const std::string value = Value(name);
    if (value.empty()) return;
    const std::optional<int64_t> bytes = ParseBytes(value);
    if (!bytes) return Fail(name, value, "a number of bytes, or of K, M or G (for example 64M)");
    out = *bytes;
  }

  void Fail(std::string_view name, const std::string& value, const std::string& expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("CLIKART_", Text(name), " is \"", value, "\", but it takes ", expected));
  }

  const absl::Status& status() const { return status_; }

 private:
  GetEnv getenv_;
  absl::Status status_;
};

std::string DefaultCacheDir(GetEnv getenv) {
  const char* xdg = getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && xdg[0] == '/') return absl::StrCat(xdg, "/clikart");
  const char* home = getenv("HOME");
  return home != nullptr && home[0] == '/' ? absl::StrCat(home, "/.cache/clikart") : std::string();
}

// What a relative path means now, whatever folder the process goes to later. Empty stays empty.
std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// "map,gdb": each listing once or more; or none of them.
void ReadListing(Reader& reader, GetEnv getenv, CodeListing& listing) {
  const char* temporary = getenv("TMPDIR");
  listing.folder = temporary != nullptr && temporary[0] == '/' ? temporary : "/tmp";
  if (const std::string folder = reader.Value("PERF_DIR"); !folder.empty()) listing.folder = Absolute(folder);
  const std::string value = reader.Value("PERF_MAP");
  if (value.empty() || value == "off") return;
  for (const absl::string_view name : absl::StrSplit(value, ',')) {
    if (name == "map") {
      listing.perf_map = true;
    } else if (name == "jitdump") {
      listing.jitdump = true;
    } else if (name == "gdb") {
      listing.gdb = true;
    } else {
      return reader.Fail("PERF_MAP", value, "off, or one or more of map, jitdump, gdb with commas between them");
    }
  }
}

std::vector<std::string> EmitterNames() {
  std::vector<std::string> names = {"auto"};
  for (const codegen::Emitter* emitter : codegen::Emitters()) names.emplace_back(emitter->name());
  return names;
}

const char* ProcessGetEnv(const char* name) { return std::getenv(name); }

}  // namespace

std::optional<int64_t> ParseBytes(std::string text) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
        shift = 10;
        break;
      case 'M':
        shift = 20;
        break;
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) text.pop_back();
  }
  int64_t count = 0;
  // SimpleAtoi passes spaces and a sign; only digits are meant here.
  if (text.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(text, &count)) return std::nullopt;
  if (count > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
  return count << shift;
}

absl::StatusOr<Environment> Environment::Parse(GetEnv getenv) {
  Environment environment;
  Reader reader(getenv);
  reader.Choice("CACHE", {"off", "memory", "disk"}, [&](size_t i) { environment.cache = static_cast<Cache>(i); });
  environment.cache_dir = reader.Value("CACHE_DIR");
  if (environment.cache_dir.empty()) environment.cache_dir = DefaultCacheDir(getenv);
  if (const std::string folder = reader.Value("CACHE_SYSTEM_DIR"); !folder.empty()) {
    environment.cache_system_dir = folder;
  }
  reader.Bytes("CACHE_SIZE", environment.cache_bytes);
  reader.Bytes("CACHE_DISK_SIZE", environment.cache_disk_bytes);
  reader.Bytes("OUTPUT_CACHE_SIZE", environment.output_cache_bytes);
  if (const std::string isa = reader.Value("MAX_ISA"); !isa.empty()) {
    const absl::StatusOr<codegen::IsaLevel> level = codegen::ParseIsaLevel(isa);
    if (level.ok()) {
      environment.max_isa = *level;
      environment.max_isa_given = true;
    } else {
      reader.Fail("MAX_ISA", isa, absl::StrCat("an ISA level: ", level.status().message()));
    }
  }
  const std::vector<std::string> emitters = EmitterNames();
  reader.Choice("EMITTER", emitters, [&](size_t i) { environment.emitter = emitters[i]; });
  if (const std::string threads = reader.Value("NUM_THREADS"); !threads.empty()) {
    const std::optional<int64_t> count = ParseBytes(threads);
    const bool digits = threads.find_first_not_of("0123456789") == std::string::npos;
    if (digits && count && *count <= 4096) {
      environment.num_threads = static_cast<int>(*count);
    } else {
      reader.Fail("NUM_THREADS", threads, "a number of threads from 0 (automatic) to 4096");
    }
  }
  reader.Choice("VERBOSE", {"0", "1", "2", "3"}, [&](size_t i) { environment.verbose = static_cast<int>(i); });
  environment.verbose_file = Absolute(reader.Value("VERBOSE_FILE"));
  reader.Choice("MATH", {"native", "exact"}, [&](size_t i) { environment.math = static_cast<codegen::MathMode>(i); });
  reader.Flag("STRICT", environment.strict);
  ReadListing(reader, getenv, environment.listing);
  if (!reader.status().ok()) return reader.status();
  return environment;
}

const absl::StatusOr<Environment>& Environment::Get() {
  static constinit FirstUse<const absl::StatusOr<Environment>> environment;
  return environment.Get([] {
    const auto* parsed = new absl::StatusOr<Environment>(Parse(ProcessGetEnv));
    if (parsed->ok()) internal::log_level.store((*parsed)->verbose, std::memory_order_relaxed);
    return parsed;
  });
}

namespace {

codegen::IsaLevel Cap() {
  const auto& environment = Environment::Get();
  return environment.ok() ? environment->max_isa : codegen::kWidestIsa;
}

}  // namespace

const codegen::CpuidRecord& HostCpuid() {
  static constinit FirstUse<const codegen::CpuidRecord> record;
  return record.Get([] { return new codegen::CpuidRecord(codegen::CpuidRecord::Host(Cap())); });
}

const codegen::Target& HostTarget() {
  static constinit FirstUse<const codegen::Target> target;
  return target.Get([] {
    const auto& environment = Environment::Get();
    const codegen::IsaLevel cap = Cap();
    const codegen::Target found = codegen::Detect(HostCpuid(), cap);
    if (environment.ok() && environment->max_isa_given && found.level() < cap) {
      Log(0, absl::StrCat("warning: CLIKART_MAX_ISA is ", Text(codegen::Name(cap)), ", but this CPU has ",
                          Text(codegen::Name(found.level())), "; using that"));
    }
    return new codegen::Target(found);
  });
}

codegen::MathMode ProcessMath() {
  const auto& environment = Environment::Get();
  return environment.ok() ? environment->math : codegen::MathMode::kNative;
}

absl::Status CheckEnvironment() { return Environment::Get().status(); }

}  // namespace clikart
