#include "code_rows.h"

#include "clikart/ir/code_layout.h"
#include "code_driver.h"
#include "column_orders.h"
#include "group_runs.h"
#include "rounding.h"

namespace clikart::codegen {
namespace {

// Few rows are multiplied as they lie. Many are too often a multiple of 4 KiB apart, which a register tile's rows
// should not be.
bool MultipliesAsTheyLie(const KernelImage& kernel, int64_t rows) {
  const ir::KernelSpec& spec = kernel.spec;
  return rows <= kernel.schedule.few_rows && spec.x == ir::DType::kFloat32 && spec.order == ir::InputOrder::kNatural &&
         !spec.scheme->minimum;
}

// Rows [args.first, args.first + args.count) at `out`, their columns in that order.
void Copy(const KernelImage& kernel, const PrepareArgs& args, const int32_t* columns, std::byte* out, int64_t stride) {
  const std::byte* const x = args.x + args.first * args.x_stride;
  if (columns != nullptr) {
    GatherArgs gather;
    gather.x = x;
    gather.x_stride = args.x_stride;
    gather.columns = columns;
    gather.out = out;
    gather.out_stride = stride;
    gather.rows = args.count;
    gather.count = kernel.spec.k;
    return Enter(kernel, kGatherEntry, gather);
  }
  StageArgs stage;
  stage.x = x;
  stage.x_stride = args.x_stride;
  stage.out = out;
  stage.out_stride = stride;
  stage.rows = args.count;
  stage.count = kernel.spec.k;
  Enter(kernel, kStageEntry, stage);
}

}  // namespace

CodeRowsLayout::CodeRowsLayout(const ir::KernelSpec& spec, int64_t rows) {
  // An odd number of lines, so that rows do not fall into the same sets of the cache.
  row_stride_ = RoundUp(RoundToLine(spec.k * int64_t{sizeof(float)}), 2 * kLine) + kLine;
  sums_at_ = rows * row_stride_;
  const int64_t sums = spec.scheme->minimum ? ir::CodeLayoutOf(spec).Groups() * rows : 0;
  bytes_ = sums_at_ + RoundToLine(sums * int64_t{sizeof(float)});
}

int64_t CodeRowsBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows) {
  if (MultipliesAsTheyLie(kernel, rows)) return 0;
  return ColumnOrders(kernel.spec, codes, 0).count() * CodeRowsLayout(kernel.spec, rows).bytes();
}

void MakeCodeRows(const KernelImage& kernel, const PrepareArgs& args) {
  if (kernel.spec.k == 0 || MultipliesAsTheyLie(kernel, args.rows)) return;
  const CodeRowsLayout rows(kernel.spec, args.rows);
  const ir::CodeLayout layout = ir::CodeLayoutOf(kernel.spec);
  const DepthBlock all = BlockFrom(layout, layout.depth(), 0);
  const ColumnOrders orders(kernel.spec, args.codes, 0);
  for (int64_t order = 0; order < orders.count(); ++order) {
    if (!orders.IsNew(order)) continue;
    std::byte* const out = args.out + order * rows.bytes();
    Copy(kernel, args, orders.columns(order), out + args.first * rows.row_stride(), rows.row_stride());
    if (!layout.scheme.minimum) continue;
    for (const GroupRun& run : all.runs) {
      float* const sums = reinterpret_cast<float*>(out + rows.sums_at()) + run.group * args.rows;
      for (int64_t row = args.first; row < args.first + args.count; ++row) {
        SumGroups(reinterpret_cast<const float*>(out + row * rows.row_stride()) + run.first, run, args.rows,
                  sums + row);
      }
    }
  }
}

}  // namespace clikart::codegen
