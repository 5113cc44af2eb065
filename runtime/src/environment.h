// The CLIKART_ settings, parsed once. docs/environment.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "clikart/codegen/product.h"
#include "clikart/codegen/target.h"
#include "code_listing.h"
#include "log.h"

namespace clikart {

// An empty variable counts as unset.
struct Environment {
  enum class Cache : uint8_t { kOff, kMemory, kDisk } cache = Cache::kDisk;
  std::string cache_dir;                                // CACHE_DIR; empty where not even a home folder is known
  std::string cache_system_dir = "/var/cache/clikart";  // CACHE_SYSTEM_DIR, read and never written
  int64_t cache_bytes = 64 << 20;                       // CACHE_SIZE, accepts K, M, G
  int64_t output_cache_bytes = 128 << 20;               // OUTPUT_CACHE_SIZE
  int64_t cache_disk_bytes = 256 << 20;                 // CACHE_DISK_SIZE, of cache_dir
  codegen::IsaLevel max_isa = codegen::kWidestIsa;      // MAX_ISA
  bool max_isa_given = false;
  std::string emitter = "auto";                         // EMITTER
  std::optional<int> num_threads;                       // NUM_THREADS
  int verbose = 0;                                      // VERBOSE
  std::string verbose_file;                             // VERBOSE_FILE, an absolute path; empty: standard error
  codegen::MathMode math = codegen::MathMode::kNative;  // MATH
  bool strict = false;                                  // STRICT
  CodeListing listing;                                  // PERF_MAP, PERF_DIR

  // Of this process, read on first use; the error of a bad value is returned on every call.
  static const absl::StatusOr<Environment>& Get();
  static absl::StatusOr<Environment> Parse(const char* (*getenv)(const char*));
};

// A whole number with an optional K, M or G (powers of 1024).
std::optional<int64_t> ParseBytes(std::string text);

// This machine as read under MAX_ISA, and the process's target.
const codegen::CpuidRecord& HostCpuid();
const codegen::Target& HostTarget();

// MATH. A bad setting shows when a kernel is asked for.
codegen::MathMode ProcessMath();

}  // namespace clikart
