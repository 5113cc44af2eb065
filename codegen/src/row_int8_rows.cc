#include "row_int8_rows.h"

namespace clikart::codegen {

void RowInt8Rows::Run(Multiply multiply) const {
  for (int64_t order = 0; order < orders_.count(); ++order) {
    if (orders_.IsNew(order)) RunOrder(order, multiply);
  }
}

RowCodes RowInt8Rows::CodesOf(int64_t order) const {
  const std::byte* const rows = args_.prepared.data + order * layout_.bytes();
  const int64_t first = args_.prepared.first;
  return {.codes = rows + layout_.codes_at() + first * layout_.codes_stride(),
          .stride = layout_.codes_stride(),
          .scales = reinterpret_cast<const float*>(rows + layout_.scales_at()) + first,
          .corrections = rows + layout_.corrections_at() + first * static_cast<int64_t>(sizeof(int32_t)),
          .corrections_stride = layout_.corrections_stride(),
          .order = order};
}

void RowInt8Rows::RunOrder(int64_t order, Multiply multiply) const {
  const RowCodes rows = CodesOf(order);
  for (int64_t panel = 0; panel < args_.panels;) {
    const int64_t first = panel;
    while (panel < args_.panels && orders_.Width(order, panel, args_.panels, 1) != 0) ++panel;
    if (panel == first) {
      ++panel;
      continue;
    }
    multiply(rows, first, panel);
  }
}

OrderedOutputs RowInt8Rows::OutputsOf(const RowCodes& rows, const PanelSums& sums) const {
  return OrderedOutputs(kernel_, args_, row_, orders_, rows.order, sums, merged_);
}

}  // namespace clikart::codegen
