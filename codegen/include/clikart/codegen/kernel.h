// The contract between a compiled kernel and whoever runs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "clikart/codegen/schedule.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// The inputs that a run of weight rows takes, in the order in which it sums them.
struct ColumnOrder {
  const int32_t* columns = nullptr;  // [k], each input once
  int64_t rows = 0;                  // weight rows it holds for, from where the order before it ends
};

// Quantized weights: what their packed panels (ir::CodeLayout) leave out.
struct CodeArgs {
  // Over all weight rows; empty where inputs are summed as they come. Rows whose orders are equal are contracted
  // together where they have one table.
  std::span<const ColumnOrder> orders;
  std::span<const int64_t> group_begins;  // ir::CodeLayout's, where groups are uneven
  const float* lane_scales = nullptr;     // of a second level (nvfp4), by panel and lane; 1 where a lane has no row
};

// QLinear: per tensor and per channel quantization of inputs and outputs. Arrays go by panel and lane, as the packed
// weight does, with zeros where a lane has no row.
struct IntegerQuant {
  const float* scales = nullptr;         // input scale * weight scale, rounded once
  const int64_t* column_sums = nullptr;  // of the weight's codes: what the input's zero point is taken times
  int32_t input_zero_point = 0;
  float output_scale = 1.0f;  // with spec.requantize
  int32_t output_zero_point = 0;
};

// What PrepareRows made of a launch's rows, once for all of its tiles.
struct PreparedRows {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int64_t first = 0;  // the tile's row 0 among them
};

// A rectangle of outputs: `rows` rows by `panels` panels from `first_panel` on.
// Nothing outside the described inputs is read, nothing outside the rectangle is written.
struct TileArgs {
  // Rows. Dense: row i at x + i * x_stride. Indirect: tap t of row i at
  // x + offsets[i * taps + t], or zeros where that offset is kZeroTap.
  const std::byte* x = nullptr;
  int64_t x_stride = 0;  // bytes
  const int64_t* offsets = nullptr;
  int64_t rows = 0;
  PreparedRows prepared;  // of kernels whose PreparedBytes is not 0, in place of x

  // Weights: packed panels, ir::PanelLayout or ir::CodeLayout; `weights` is panel first_panel's address.
  const std::byte* weights = nullptr;
  const CodeArgs* codes = nullptr;  // quantized weights
  const IntegerQuant* integer = nullptr;

  int64_t first_panel = 0;
  int64_t panels = 0;
  const float* bias = nullptr;  // of output column 0, padded to whole panels; null without bias

  std::byte* y = nullptr;  // of row 0, output column 0
  int64_t y_stride = 0;    // bytes between rows

  std::byte* scratch = nullptr;  // ScratchBytes(spec, schedule, rows, panels), 64-byte aligned
};

// Rows of x in a form that all tiles read. Depends on x, x_stride and codes alone.
struct PrepareArgs {
  const std::byte* x = nullptr;  // of row 0
  int64_t x_stride = 0;          // bytes
  const CodeArgs* codes = nullptr;
  int64_t rows = 0;              // of the launch
  int64_t first = 0, count = 0;  // those to prepare
  std::byte* out = nullptr;      // PreparedBytes, 64-byte aligned; calls for other rows may run at the same time
  std::byte* scratch = nullptr;  // PrepareScratchBytes, 64-byte aligned
};

inline constexpr int64_t kZeroTap = INT64_MIN;

struct KernelImage;
using TileFunction = void (*)(const KernelImage& kernel, const TileArgs& args);

// Entry points of emitted code, by role; an emitter fills the ones that its driver calls.
inline constexpr int kMaxEntries = 160;

// An inner loop of emitted code, for static analysis.
struct Loop {
  std::string name;            // "micro 14x2 packed"
  int32_t begin = 0, end = 0;  // bytes of the code, the branch back included
  int64_t multiplies = 0;      // fma, dot product or tile product instructions in it
};

// What an emitter answers: position-independent bytes, where they are entered, and the compiled
// driver that walks a tile and calls the entries. The portable emitter has a driver and no bytes.
struct EmittedKernel {
  ir::KernelSpec spec;
  Schedule schedule;
  std::string emitter;  // "xbyak", "llvm", "portable"
  IsaLevel isa = IsaLevel::kBaseline;
  std::vector<uint8_t> code;                       // instructions, then the constants that they read
  int64_t instruction_bytes = 0;                   // of `code`: what a disassembler may read
  std::array<int32_t, kMaxEntries> entry_offsets;  // -1: none
  std::vector<Loop> loops;
  TileFunction run = nullptr;
};

// An emitted kernel whose code lies in executable memory: what a plan holds and calls.
struct KernelImage {
  ir::KernelSpec spec;
  Schedule schedule;
  std::array<const void*, kMaxEntries> entries{};
  TileFunction run = nullptr;
};

}  // namespace clikart::codegen
