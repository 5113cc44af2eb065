// What the portable contractions share: the tile's columns, its rows of x in f32 and its accumulators.
#pragma once

#include <cstdint>
#include <vector>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen::portable {

struct LaneOps;

// Rows that are contracted together: decoding a weight is paid once for all of them.
inline constexpr int64_t kRowBlock = 16;
// Weight rows side by side, each output in its own lane; also the panel's width.
inline constexpr int64_t kLanes = 16;

// Output columns [begin, end) of the tile; the last panel may be cut off.
struct Columns {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
Columns TileColumns(const ir::KernelSpec& spec, const TileArgs& args);

// f32 values of a row block: plane 0 for the outputs or the gates, plane 1 for the ups of a gated spec.
// Starts as +0.
class Accumulators {
 public:
  Accumulators(const ir::KernelSpec& spec, int64_t rows, Columns columns)
      : rows_(rows), columns_(columns.count()), planes_(spec.gated() ? 2 : 1) {
    values_.assign(static_cast<size_t>(planes_ * rows_ * columns_), 0.0f);
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t planes() const { return planes_; }
  float* Row(int64_t plane, int64_t row) { return values_.data() + (plane * rows_ + row) * columns_; }

 private:
  int64_t rows_, columns_, planes_;
  std::vector<float> values_;
};

// The weight row behind column 0 of a plane.
inline int64_t FirstWeightRow(const ir::KernelSpec& spec, int64_t plane) { return plane * (spec.n / 2); }

// Rows [first, first + rows) of x, widened: [rows, depth], taps in order, padded taps as +0.
std::vector<float> WidenRows(const ir::KernelSpec& spec, const TileArgs& args, int64_t first, int64_t rows);

// Where row `row` of a dense x lies.
inline const std::byte* RowOfX(const TileArgs& args, int64_t row) { return args.x + row * args.x_stride; }

// `count` elements of any float type as f32, exactly.
void Widen(ir::DType dtype, const std::byte* from, int64_t count, float* to);

// Depths [first, first + count) of a panel as f32, sixteen lanes each; `first` begins a packed step.
void WidenSteps(const ir::PanelLayout& layout, const std::byte* panel, int64_t first, int64_t count, float* to);

// A row block of a tile: rows [first, first + accumulators.rows()).
struct RowBlock {
  const ir::KernelSpec& spec;
  const TileArgs& args;
  const LaneOps& ops;
  int64_t first;
  Columns columns;
};

// Adds the bias, applies the activation, rounds once and stores rows [first, first + rows).
void StoreWithEpilogue(const RowBlock& block, Accumulators& accumulators);

// Contractions fill the accumulators of a row block. All but ContractInteger leave the bias to the epilogue.
void ContractFloat(const RowBlock& block, Accumulators& accumulators);
void ContractWeightOnly(const RowBlock& block, Accumulators& accumulators);
void ContractRowInt8(const RowBlock& block, Accumulators& accumulators);
void ContractInteger(const RowBlock& block, Accumulators& accumulators);
void ContractDepthwise(const RowBlock& block, Accumulators& accumulators);

}  // namespace clikart::codegen::portable
