// The orders in which a tile's weight rows sum their inputs (CodeArgs::orders).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "clikart/codegen/kernel.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/ir/panel_layout.h"

namespace clikart::codegen {

// Rows of one order's table are contracted together. Panels are counted from the tile's first one.
class ColumnOrders {
 public:
  ColumnOrders(const ir::KernelSpec& spec, const CodeArgs* codes, int64_t first_panel);
  ColumnOrders(const ir::KernelSpec& spec, const TileArgs& tile) : ColumnOrders(spec, tile.codes, tile.first_panel) {}

  int64_t count() const { return static_cast<int64_t>(all_.size()); }
  bool IsNew(int64_t order) const { return At(order).first == order; }
  const int32_t* columns(int64_t order) const { return At(order).columns; }  // null: as they come
  bool one() const { return one_; }                                          // nothing sums in another order

  // Lanes of a panel, a bit each, that sum in this order; in one that comes later; in any.
  uint32_t Lanes(int64_t order, int64_t panel) const;
  uint32_t LanesOfLater(int64_t order, int64_t panel) const;
  uint32_t Lanes(int64_t panel) const;

  // As many panels from `panel` on, of `panels`, as sum in that order, up to `most`: a power of two, or 0.
  int64_t Width(int64_t order, int64_t panel, int64_t panels, int64_t most) const;

  // The accumulators of a panel that is contracted in this order, once all its lanes have theirs: `c`, or `merged`
  // where it has lanes of other orders, each of which takes its own. Null: another order's are missing.
  const std::byte* Complete(int64_t order, int64_t panel, int64_t rows, const std::byte* c, std::byte* merged) const;

 private:
  struct Rows {
    const int32_t* columns;
    int64_t begin, end;  // weight rows
    int64_t first;       // the first of the orders with this table
  };

  const Rows& At(int64_t order) const { return all_[static_cast<size_t>(order)]; }
  template <typename Chooses>
  uint32_t LanesThat(int64_t panel, const Chooses& chooses) const;

  const ir::PanelLayout layout_;
  const int64_t first_panel_;
  absl::InlinedVector<Rows, 8> all_;
  bool one_ = true;
};

}  // namespace clikart::codegen
