// How a kernel walks its tile: sizes only. A schedule never changes a bit of the result.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// What a register kernel multiplies at once, as an emitter's registers allow.
struct RegisterTile {
  int64_t rows = 1;
  int64_t panels = 1;
  int64_t depth = 1;         // elements of k that one instruction takes in a lane; 4 bytes of a staged row
  int64_t decoded_rows = 0;  // rows where codes of quantized weights are decoded in registers
};

struct Schedule {
  int64_t few_rows = 0;       // up to this many rows weights are decoded in registers
  int64_t decoded_block = 0;  // rows of a register tile that decodes codes of quantized weights
  int64_t row_block = 1;      // rows of a register tile
  int64_t panel_block = 1;    // panels of a register tile
  int64_t matrix_rows = 0;    // of a matrix tile; 0: the accumulators are vectors
  int64_t step = 1;           // elements of k that are multiplied at once: a step of what follows
  int64_t depth_block = 0;    // steps between two stores of the accumulators
  int64_t tile_rows = 0;      // most rows a tile should have
  int64_t tile_panels = 0;    // most panels a tile should have
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Every field by name, for who writes a schedule down and reads it back.
struct ScheduleField {
  std::string_view name;
  int64_t Schedule::* value;
};
inline constexpr ScheduleField kScheduleFields[] = {
    {"few_rows", &Schedule::few_rows},       {"decoded_block", &Schedule::decoded_block},
    {"row_block", &Schedule::row_block},     {"panel_block", &Schedule::panel_block},
    {"matrix_rows", &Schedule::matrix_rows}, {"step", &Schedule::step},
    {"depth_block", &Schedule::depth_block}, {"tile_rows", &Schedule::tile_rows},
    {"tile_panels", &Schedule::tile_panels},
};
static_assert(sizeof(Schedule) == std::size(kScheduleFields) * sizeof(int64_t), "a field is not listed");

Schedule MakeSchedule(const ir::KernelSpec& spec, const RegisterTile& tile);

// Scratch that a tile of that size needs; grows with rows and panels, so the largest tile's serves all.
int64_t ScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels);

}  // namespace clikart::codegen
