// A tile of compute="int8", whatever multiplies it: where the codes of its rows are, and what becomes of their sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "clikart/codegen/kernel.h"
#include "column_orders.h"
#include "row_int8_driver.h"

namespace clikart::codegen {

// A tile's rows in one order of inputs, from its first row on.
struct RowCodes {
  const std::byte* codes;
  int64_t stride;  // bytes between rows of codes
  const float* scales;
  const std::byte* corrections;  // as QuantizeArgs has them
  int64_t corrections_stride;    // bytes between groups
};

class RowInt8Rows {
 public:
  // [row][16] f32 sums of a panel, which is counted from the tile's first one.
  using Take = absl::FunctionRef<void(int64_t panel, const std::byte* sums)>;
  // Multiplies rows by panels [first, end) and gives each one's sums to `take`.
  using Multiply = absl::FunctionRef<void(const RowCodes& rows, int64_t first, int64_t end, Take take)>;

  // The kernel and the arguments have to live as long. Panels whose lanes sum in several orders come together at
  // `merged`, `merged_stride` bytes apart.
  RowInt8Rows(const KernelImage& kernel, const TileArgs& args, std::byte* merged, int64_t merged_stride)
      : kernel_(kernel),
        args_(args),
        layout_(kernel.spec, kernel.schedule, args.prepared.count),
        merged_(merged),
        merged_stride_(merged_stride),
        orders_(kernel.spec, args) {}

  // All outputs of the tile.
  void Run(Multiply multiply) const;

 private:
  RowCodes CodesOf(int64_t order) const;
  // The runs of panels that have lanes of that order.
  void RunOrder(int64_t order, Multiply multiply) const;
  void Finish(int64_t order, int64_t panel, const std::byte* sums) const;

  const KernelImage& kernel_;
  const TileArgs& args_;
  const RowCodesLayout layout_;
  std::byte* const merged_;
  const int64_t merged_stride_;
  const ColumnOrders orders_;
};

}  // namespace clikart::codegen
