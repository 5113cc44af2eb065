#include "panel_outputs.h"

#include <algorithm>

namespace clikart::codegen {

void PanelOutputs::MakeTerms() {
  requantization_ = RequantizationOf(kernel_.spec, *args_.integer);
  for (int64_t i = 0; i < sums_.panels; ++i) {
    const int64_t panel = args_.first_panel + sums_.panel + i;
    terms_[static_cast<size_t>(i)] = TermsOf(kernel_.spec, *args_.integer, panel, BiasOf(i));
  }
}

void PanelOutputs::Finish(int64_t row, int64_t rows) const {
  for (int64_t i = 0; i < sums_.panels; ++i) {
    const int64_t column = ColumnOf(i);
    EpilogueArgs epilogue;
    epilogue.c = sums_.c + i * sums_.c_stride + row * kAccumulatorRow;
    epilogue.bias = BiasOf(i);
    epilogue.y = args_.y + row * args_.y_stride + column * row_.element_bytes;
    epilogue.y_stride = args_.y_stride;
    epilogue.rows = rows;
    epilogue.columns = std::min(row_.panel_columns, row_.columns - column);
    if (args_.integer != nullptr) {
      epilogue.terms = &terms_[static_cast<size_t>(i)];
      epilogue.requantization = requantization_;
    }
    Enter(kernel_, kEpilogueEntry, epilogue);
  }
}

OrderedOutputs::OrderedOutputs(const KernelImage& kernel, const TileArgs& args, const OutputRow& row,
                               const ColumnOrders& orders, int64_t order, const PanelSums& sums, std::byte* merged)
    : kernel_(kernel), args_(args), row_(row), orders_(orders), order_(order), sums_(sums), merged_(merged) {
  if (orders.one()) outputs_.emplace(kernel, args, row, sums);
}

void OrderedOutputs::Finish(int64_t row, int64_t rows) const {
  if (outputs_.has_value()) return outputs_->Finish(row, rows);
  if (row + rows < args_.rows) return;
  for (int64_t i = 0; i < sums_.panels; ++i) {
    const int64_t panel = sums_.panel + i;
    const std::byte* const complete =
        orders_.Complete(order_, panel, args_.rows, sums_.c + i * sums_.c_stride, merged_ + panel * sums_.c_stride);
    if (complete != nullptr) PanelOutputs(kernel_, args_, row_, {panel, 1, complete, 0}).Finish(0, args_.rows);
  }
}

}  // namespace clikart::codegen
