// The outputs of neighbouring panels, written as each block of rows has its sums.
//
// Rows of a matrix are often a multiple of 4 KiB apart, so that a panel's outputs fall into few sets of every cache:
// of a tile's rows, written one panel after the other, each line is gone before the next panel wants the one beside it.
// Of a block's rows it is still there, and their sums are in the first-level cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "clikart/codegen/kernel.h"
#include "clikart/ir/panel_layout.h"
#include "column_orders.h"
#include "integer_sums.h"
#include "panel_driver.h"

namespace clikart::codegen {

// Where a row's outputs are, once for a tile.
struct OutputRow {
  explicit OutputRow(const ir::KernelSpec& spec)
      : columns(ir::LayoutOf(spec).outputs()),
        panel_columns(ir::LayoutOf(spec).OutputsPerPanel()),
        element_bytes(static_cast<int64_t>(ir::SizeOf(spec.y))) {}
  int64_t columns;        // all
  int64_t panel_columns;  // of a panel
  int64_t element_bytes;
};

// Sums of neighbouring panels of a tile, which are counted from its first one.
struct PanelSums {
  int64_t panel, panels;  // up to kMostTilePanels
  const std::byte* c;     // [panel][row][16]
  int64_t c_stride;       // bytes between panels
};

class PanelOutputs {
 public:
  // All but the sums have to live as long.
  PanelOutputs(const KernelImage& kernel, const TileArgs& args, const OutputRow& row, const PanelSums& sums)
      : kernel_(kernel), args_(args), row_(row), sums_(sums) {
    if (args.integer != nullptr) MakeTerms();
  }

  // The epilogue of rows [row, row + rows).
  void Finish(int64_t row, int64_t rows) const;

 private:
  void MakeTerms();
  // Of the sums' panel `i`: its first column, and the bias from there on.
  int64_t ColumnOf(int64_t i) const { return (args_.first_panel + sums_.panel + i) * row_.panel_columns; }
  const float* BiasOf(int64_t i) const { return args_.bias == nullptr ? nullptr : args_.bias + ColumnOf(i); }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const OutputRow& row_;
  const PanelSums sums_;
  // Of integer contractions.
  Requantization requantization_;
  std::array<PanelTerms, kMostTilePanels> terms_;
};

// The same where weight rows may sum in several orders. A panel that has lanes of others is finished with the last of
// its orders, when its last block of rows is: until then its lanes come together at `merged`.
class OrderedOutputs {
 public:
  // Of panels that were contracted in `order`. `merged` is the tile's, a panel after the other, c_stride bytes apart.
  // All but the sums have to live as long.
  OrderedOutputs(const KernelImage& kernel, const TileArgs& args, const OutputRow& row, const ColumnOrders& orders,
                 int64_t order, const PanelSums& sums, std::byte* merged);

  // As above; blocks of rows come one after the other.
  void Finish(int64_t row, int64_t rows) const;

 private:
  const KernelImage& kernel_;
  const TileArgs& args_;
  const OutputRow& row_;
  const ColumnOrders& orders_;
  const int64_t order_;
  const PanelSums sums_;
  std::byte* const merged_;
  std::optional<PanelOutputs> outputs_;  // where there is one order
};

}  // namespace clikart::codegen
