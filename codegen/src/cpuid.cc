// What this machine says about itself.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clikart/codegen/target.h"
#include "detect.h"

namespace clikart::codegen {
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros where the CPU has no such leaf.
Leaf ReadLeaf(uint32_t leaf, uint32_t subleaf) {
  Leaf words;
  if (__get_cpuid_count(leaf, subleaf, &words.eax, &words.ebx, &words.ecx, &words.edx) == 0) return {};
  return words;
}

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// The permission belongs to the process: threads have it at once, children of a fork inherit it, a
// program started by exec asks again. The system refuses where some thread's alternate signal stack
// is too small for a frame with tiles.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

}  // namespace

CpuidRecord CpuidRecord::Host(IsaLevel cap) {
  CpuidRecord record;
  const Leaf leaf1 = ReadLeaf(1, 0);
  record.leaf1_ecx = leaf1.ecx;
  record.leaf1_edx = leaf1.edx;
  const Leaf leaf7 = ReadLeaf(7, 0);
  record.leaf7_ebx = leaf7.ebx;
  record.leaf7_ecx = leaf7.ecx;
  record.leaf7_edx = leaf7.edx;
  // EAX of leaf 7 counts its subleaves; one that does not exist may hold anything.
  if (leaf7.eax >= 1) record.leaf7_1_eax = ReadLeaf(7, 1).eax;
  record.leaf1d_eax = ReadLeaf(0x1d, 0).eax;
  if (record.leaf1d_eax >= 1) {
    const Leaf palette = ReadLeaf(0x1d, 1);
    record.palette_eax = palette.eax;
    record.palette_ebx = palette.ebx;
    record.palette_ecx = palette.ecx;
  }
  record.leaf1e_ebx = ReadLeaf(0x1e, 0).ebx;
  if (HasOsxsave(record)) record.xcr0 = ReadXcr0();
  if (cap >= IsaLevel::kAmx && OnlyTilePermissionLacks(record)) record.tile_permission = RequestTiles();
  return record;
}

}  // namespace clikart::codegen
