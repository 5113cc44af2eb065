#include "column_orders.h"

#include <algorithm>
#include <cstring>

#include "panel_driver.h"

namespace clikart::codegen {
namespace {

// Copies these lanes of so many rows of a panel's accumulators.
void MergeLanes(uint32_t lanes, int64_t rows, const std::byte* from, std::byte* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      const int64_t at = row * kAccumulatorRow + lane * static_cast<int64_t>(sizeof(float));
      if ((lanes >> lane & 1) != 0) std::memcpy(to + at, from + at, sizeof(float));
    }
  }
}

}  // namespace

ColumnOrders::ColumnOrders(const ir::KernelSpec& spec, const CodeArgs* codes, int64_t first_panel)
    : layout_(ir::LayoutOf(spec)), first_panel_(first_panel) {
  if (spec.order == ir::InputOrder::kNatural) {
    all_.push_back({nullptr, 0, spec.n, 0});
    return;
  }
  int64_t begin = 0;
  for (const ColumnOrder& order : codes->orders) {
    const auto same =
        std::find_if(all_.begin(), all_.end(), [&](const Rows& other) { return other.columns == order.columns; });
    const int64_t first = same == all_.end() ? count() : same - all_.begin();
    all_.push_back({order.columns, begin, begin + order.rows, first});
    begin += order.rows;
  }
  one_ = std::all_of(all_.begin(), all_.end(), [](const Rows& rows) { return rows.first == 0; });
}

template <typename Chooses>
uint32_t ColumnOrders::LanesThat(int64_t panel, const Chooses& chooses) const {
  uint32_t lanes = 0;
  for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
    const int64_t row = layout_.RowOf(first_panel_ + panel, lane);
    for (const Rows& rows : all_) {
      if (chooses(rows) && row >= rows.begin && row < rows.end) lanes |= uint32_t{1} << lane;
    }
  }
  return lanes;
}

uint32_t ColumnOrders::Lanes(int64_t order, int64_t panel) const {
  return LanesThat(panel, [&](const Rows& rows) { return rows.first == order; });
}

uint32_t ColumnOrders::LanesOfLater(int64_t order, int64_t panel) const {
  return LanesThat(panel, [&](const Rows& rows) { return rows.first > order; });
}

uint32_t ColumnOrders::Lanes(int64_t panel) const {
  return LanesThat(panel, [](const Rows&) { return true; });
}

int64_t ColumnOrders::Width(int64_t order, int64_t panel, int64_t panels, int64_t most) const {
  int64_t width = most;
  while (width > panels - panel) width /= 2;
  if (one_) return width;
  for (int64_t i = 0; i < width; ++i) {
    if (Lanes(order, panel + i) != 0) continue;
    while (width > i) width /= 2;
  }
  return width;
}

const std::byte* ColumnOrders::Complete(int64_t order, int64_t panel, int64_t rows, const std::byte* c,
                                        std::byte* merged) const {
  if (one_) return c;
  const uint32_t lanes = Lanes(order, panel);
  if (lanes == Lanes(panel)) return c;
  MergeLanes(lanes, rows, c, merged);
  return LanesOfLater(order, panel) == 0 ? merged : nullptr;
}

}  // namespace clikart::codegen
