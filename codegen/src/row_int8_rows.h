// A tile of compute="int8", whatever multiplies it: where the codes of its rows are, and what becomes of their sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "clikart/codegen/kernel.h"
#include "column_orders.h"
#include "panel_outputs.h"
#include "row_int8_driver.h"

namespace clikart::codegen {

// A tile's rows in one order of inputs, from its first row on.
struct RowCodes {
  const std::byte* codes;
  int64_t stride;  // bytes between rows of codes
  const float* scales;
  const std::byte* corrections;  // as QuantizeArgs has them
  int64_t corrections_stride;    // bytes between groups
  int64_t order;
};

class RowInt8Rows {
 public:
  // Multiplies rows by panels [first, end), counted from the tile's first one, and finishes their outputs.
  using Multiply = absl::FunctionRef<void(const RowCodes& rows, int64_t first, int64_t end)>;

  // The kernel and the arguments have to live as long. `merged` is OrderedOutputs'.
  RowInt8Rows(const KernelImage& kernel, const TileArgs& args, std::byte* merged)
      : kernel_(kernel),
        args_(args),
        layout_(kernel.spec, kernel.schedule, args.prepared.count),
        merged_(merged),
        orders_(kernel.spec, args),
        row_(kernel.spec) {}

  // All outputs of the tile.
  void Run(Multiply multiply) const;
  // Of f32 sums.
  OrderedOutputs OutputsOf(const RowCodes& rows, const PanelSums& sums) const;

 private:
  RowCodes CodesOf(int64_t order) const;
  // The runs of panels that have lanes of that order.
  void RunOrder(int64_t order, Multiply multiply) const;

  const KernelImage& kernel_;
  const TileArgs& args_;
  const RowCodesLayout layout_;
  std::byte* const merged_;
  const ColumnOrders orders_;
  const OutputRow row_;
};

}  // namespace clikart::codegen
