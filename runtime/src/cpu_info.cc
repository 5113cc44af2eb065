#include <cpuid.h>

#include <array>
#include <cstring>
#include <iterator>

#include "clikart/codegen/target.h"
#include "clikart/runtime.h"
#include "environment.h"
#include "thread_count.h"

namespace clikart {
namespace {

using codegen::CpuidRecord;

struct Feature {
  const char* name;
  uint32_t CpuidRecord::* leaf;
  int bit;
  uint64_t state;  // bits of XCR0 that the OS has to keep for it
};

constexpr uint64_t kYmm = 0x6, kZmm = 0xE6, kTiles = 0x60000;

constexpr Feature kFeatures[] = {
    {"sse3", &CpuidRecord::leaf1_ecx, 0, 0},           {"ssse3", &CpuidRecord::leaf1_ecx, 9, 0},
    {"sse4_1", &CpuidRecord::leaf1_ecx, 19, 0},        {"sse4_2", &CpuidRecord::leaf1_ecx, 20, 0},
    {"popcnt", &CpuidRecord::leaf1_ecx, 23, 0},        {"bmi1", &CpuidRecord::leaf7_ebx, 3, 0},
    {"bmi2", &CpuidRecord::leaf7_ebx, 8, 0},           {"avx", &CpuidRecord::leaf1_ecx, 28, kYmm},
    {"f16c", &CpuidRecord::leaf1_ecx, 29, kYmm},       {"fma", &CpuidRecord::leaf1_ecx, 12, kYmm},
    {"avx2", &CpuidRecord::leaf7_ebx, 5, kYmm},        {"avx512f", &CpuidRecord::leaf7_ebx, 16, kZmm},
    {"avx512dq", &CpuidRecord::leaf7_ebx, 17, kZmm},   {"avx512bw", &CpuidRecord::leaf7_ebx, 30, kZmm},
    {"avx512vl", &CpuidRecord::leaf7_ebx, 31, kZmm},   {"avx512vbmi", &CpuidRecord::leaf7_ecx, 1, kZmm},
    {"avx512vnni", &CpuidRecord::leaf7_ecx, 11, kZmm}, {"avx512fp16", &CpuidRecord::leaf7_edx, 23, kZmm},
    {"amx_bf16", &CpuidRecord::leaf7_edx, 22, kTiles}, {"amx_tile", &CpuidRecord::leaf7_edx, 24, kTiles},
    {"amx_int8", &CpuidRecord::leaf7_edx, 25, kTiles}, {"amx_fp16", &CpuidRecord::leaf7_1_eax, 21, kTiles},
    {"avx_vnni", &CpuidRecord::leaf7_1_eax, 4, kYmm},  {"avx512bf16", &CpuidRecord::leaf7_1_eax, 5, kZmm},
};

std::string Vendor() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return {};
  const std::array<unsigned, 3> words = {ebx, edx, ecx};
  return std::string(reinterpret_cast<const char*>(words.data()), sizeof words);
}

std::string Brand() {
  std::array<unsigned, 12> words{};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* four = words.data() + 4 * i;
    if (__get_cpuid(0x80000002u + i, four, four + 1, four + 2, four + 3) == 0) return {};
  }
  const char* text = reinterpret_cast<const char*>(words.data());
  std::string brand(text, strnlen(text, sizeof words));
  const size_t first = brand.find_first_not_of(' '), last = brand.find_last_not_of(' ');
  return first == std::string::npos ? std::string() : brand.substr(first, last - first + 1);
}

}  // namespace

CpuInfo GetCpuInfo() {
  CpuInfo info;
  info.vendor = Vendor();
  info.brand = Brand();
  info.isa = codegen::Name(HostTarget().level());
  const auto& environment = Environment::Get();
  info.max_isa = codegen::Name(environment.ok() ? environment->max_isa : codegen::kWidestIsa);
  const CpuidRecord& cpuid = HostCpuid();
  for (const Feature& feature : kFeatures) {
    const bool present = (cpuid.*feature.leaf >> feature.bit & 1) != 0;
    if (present && (cpuid.xcr0 & feature.state) == feature.state) info.features.emplace_back(feature.name);
  }
  info.target = HostTarget().ToString();
  info.logical_cpus = LogicalCpus();
  info.usable_cpus = UsableCpus();
  info.threads = GetNumThreads();
  return info;
}

}  // namespace clikart
