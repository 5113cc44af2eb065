// The loop nest of compute="int8" (numerics rule 6) and the contract with the code it calls: a launch's rows become
// codes once, and in each tile a panel's groups of weight codes are multiplied with them one after the other.
//
// Weight codes u are multiplied as unsigned bytes (int8 ones are packed with their top bit turned, ir/code_layout.h),
// codes x of a row as signed ones. What a group's sum of x * u lacks is a multiple of the row's sum of x over that
// group, its *correction*:
//
//   symmetric    sum of x * (u - midpoint) = sum of x * u - midpoint * sum of x: known before the group begins
//   zero points  likewise, with a zero point for each lane: added at the group's end
//   minimums     float(sum of x) times the lane's minimum is added to the output
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/code_layout.h"
#include "panel_driver.h"

namespace clikart::codegen {

enum class Correction : uint8_t { kMidpoint, kZeroPoints, kMinimums };

constexpr Correction CorrectionOf(const ir::QuantScheme& scheme) {
  if (scheme.minimum) return Correction::kMinimums;
  return scheme.HasZeroPoint() ? Correction::kZeroPoints : Correction::kMidpoint;
}

// What symmetric codes stand around, as they are multiplied.
inline int UnsignedMidpoint(const ir::QuantScheme& scheme) { return 1 << (scheme.bits - 1); }

// Steps of a group whose sums stay in int32 whatever the codes and zero points are.
int64_t DeepestGroup(const ir::QuantScheme& scheme);
// A row's sum of codes over so long a group fits 16 bits, as the zero points do that it is multiplied with.
inline constexpr int64_t kWordGroup = 32'767 / 127;
// Of the longest group.
inline int64_t LongestGroup(const ir::KernelSpec& spec) {
  const int64_t size = spec.scheme->group_size;
  return size == -1 || size > spec.k ? spec.k : size;
}

// A lane's unit of weight codes is multiplied in parts, each by one dword of a row: Schedule::step codes, as bytes or
// as 16-bit numbers. With p parts, part j takes steps j, j + p, j + 2p, ..., which is what one mask takes from the
// unit shifted down by j codes. A row's group has whole units, the last one filled up with zeros.
inline int UnitParts(const ir::KernelSpec& spec, const Schedule& schedule) {
  return spec.interleave / static_cast<int>(schedule.step);
}
inline constexpr int kPartBytes = 4;
// The bits of that: codes as bytes, or of whole bytes every other one as 16 bits.
constexpr uint32_t PartMask(const ir::QuantScheme& scheme) {
  return scheme.bits == 8 ? 0x00ff00ff : scheme.bits == 4 ? 0x0f0f0f0f : 0x03030303;
}

// Makes rows of x codes: rule 6's, of rows that are not finite any. Entries of these arguments move on.
struct QuantizeArgs {
  const std::byte* x = nullptr;  // of spec.x; of f32 where the spec has an order
  int64_t x_stride = 0;          // bytes
  std::byte* codes = nullptr;    // up to 32 bytes behind a row's last unit are overwritten
  int64_t codes_stride = 0;      // bytes
  float* scales = nullptr;       // [rows]; NaN where a row is not finite, which makes its outputs NaN
  // [groups][row]: the code sum times -midpoint or -1, or as f32 for minimums.
  int32_t* corrections = nullptr;
  int64_t corrections_stride = 0;  // bytes between groups
  int64_t rows = 0;
  alignas(64) float tail[ir::kPanelLanes] = {};  // the entry's own
};

// What a group's header says of a panel's lanes.
struct alignas(64) GroupHeader {
  float scales[ir::kPanelLanes];
  union {
    float minimums[ir::kPanelLanes];
    int32_t zero_points[ir::kPanelLanes];
  };
};

// Multiplies a block of rows by all groups of a panel, or of several neighbouring ones. Entries move on.
struct GroupsArgs {
  const std::byte* a = nullptr;  // the first row's codes
  int64_t a_stride = 0;          // bytes between rows
  const std::byte* b = nullptr;  // the first panel
  int64_t b_stride = 0;          // bytes between panels
  // Asked for while b is read, at the same pace: one run for each panel, b_stride apart. Any address will do.
  const std::byte* prefetch = nullptr;
  const std::byte* corrections = nullptr;  // of the first row
  int64_t corrections_stride = 0;          // bytes between groups
  std::byte* c = nullptr;                  // f32 outputs: [panel][row][16], rows kAccumulatorRow apart
  int64_t c_stride = 0;                    // bytes between panels
  int64_t groups = 0;
  // Of the rows' scales, and what the group's headers say; the latter are the entry's own.
  alignas(64) float row_scales[kMostTileRows] = {};
  GroupHeader headers[kMostTilePanels];
};

// Entry numbers; micro kernels are those of the panel driver, as are the epilogue and, for rows of 16 bits that are
// put into another order, staging.
inline constexpr int kQuantizeEntry = kWidenEntry;

// A launch's rows as codes, once for each order in which weight rows sum them: where is what, in byte offsets on cache
// lines.
class RowCodesLayout {
 public:
  RowCodesLayout(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows);

  int64_t codes_at() const { return 0; }
  int64_t codes_stride() const { return codes_stride_; }  // bytes between rows
  int64_t scales_at() const { return scales_at_; }
  int64_t corrections_at() const { return corrections_at_; }
  int64_t corrections_stride() const { return corrections_stride_; }  // bytes between groups
  int64_t bytes() const { return bytes_; }                            // of an order

 private:
  int64_t codes_stride_;
  int64_t scales_at_;
  int64_t corrections_at_;
  int64_t corrections_stride_;
  int64_t bytes_;
};

// PreparedBytes, PrepareScratchBytes and PrepareRows of these kernels (clikart/codegen/driver.h).
int64_t RowCodesBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows);
int64_t RowCodesScratchBytes(const ir::KernelSpec& spec);
void MakeRowCodes(const KernelImage& kernel, const PrepareArgs& args);

// Scratch of a tile.
int64_t RowInt8ScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

// Rows of a tile whose codes stay in the second-level cache: at least two of the schedule's blocks.
int64_t RowsOfTile(const ir::KernelSpec& spec, const Schedule& schedule, int64_t most_blocks);
inline constexpr int64_t kPanelsOfTile = 128;

// Rows and panels of a tile for that register tile.
Schedule MakeRowInt8Schedule(const ir::KernelSpec& spec, const RegisterTile& tile);
// That of the register kernels, which of a kernel of matrix tiles take few rows.
Schedule VectorSchedule(const Schedule& schedule);

// The register kernels that are called.
std::vector<MicroKind> RowInt8Kinds(const ir::KernelSpec& spec, const Schedule& schedule);

// TileFunction of every emitter that provides these entries.
void RunRowInt8(const KernelImage& kernel, const TileArgs& args);

}  // namespace clikart::codegen
