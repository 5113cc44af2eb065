#include "row_int8_driver.h"

#include <algorithm>
#include <cstring>

#include "column_orders.h"
#include "rounding.h"
#include "row_int8_rows.h"
#include "tile_scratch.h"

namespace clikart::codegen {
namespace {

// Stores of codes go so far beyond the last unit.
constexpr int64_t kCodeSlack = 32;
// Codes of a tile's rows, which stay in the second-level cache while panels pass.
constexpr int64_t kCodesOfTile = 512 << 10;
constexpr int64_t kMostRowBlocks = 13;

// Bytes of a row as codes.
int64_t CodeBytes(const ir::KernelSpec& spec, const Schedule& schedule) {
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec);
  const int64_t groups = layout.Groups();
  if (groups == 0) return 0;
  const int64_t units =
      (groups - 1) * layout.UnitsOf(LongestGroup(spec)) + layout.UnitsOf(layout.GroupSteps(groups - 1));
  return units * UnitParts(spec, schedule) * kPartBytes;
}

int64_t RowBytes(const ir::KernelSpec& spec) { return RoundUp(spec.k * int64_t{sizeof(float)}, kLine); }

// One row's inputs as f32 in that order. Scratch: the row there and before.
const std::byte* OrderedRow(const KernelImage& kernel, const std::byte* x, const int32_t* columns, std::byte* scratch) {
  const ir::KernelSpec& spec = kernel.spec;
  std::byte* const ordered = scratch;
  if (spec.x != ir::DType::kFloat32) {
    StageArgs stage;
    stage.x = x;
    stage.out = scratch + RowBytes(spec);
    stage.rows = 1;
    stage.count = spec.k;
    Enter(kernel, kStageEntry, stage);
    x = scratch + RowBytes(spec);
  }
  constexpr int64_t kElement = sizeof(float);
  for (int64_t i = 0; i < spec.k; ++i) std::memcpy(ordered + i * kElement, x + columns[i] * kElement, kElement);
  return ordered;
}

// A register tile has no more sums than the largest, whatever its shape.
int64_t SumsBytes(const Schedule& schedule, int64_t rows) {
  return std::max(rows, schedule.row_block) * schedule.panel_block * kAccumulatorRow;
}

// Panels that a block of rows takes side by side, where a tile has so many blocks. A block that is alone streams the
// weights, and memory gives one panel's faster than those of several in turn; more than two rows of codes of few bits
// are not bound by it.
int64_t PanelsAtOnce(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t blocks) {
  if (blocks == 1 && (rows <= 2 || spec.scheme->bits == 8)) return 1;
  return WidestPanels(schedule, rows);
}

// One tile under way.
class Tile {
 public:
  Tile(const KernelImage& kernel, const TileArgs& args)
      : kernel_(kernel),
        args_(args),
        schedule_(VectorSchedule(kernel.schedule)),
        layout_(ir::CodeLayoutOf(kernel.spec)),
        panel_bytes_(layout_.PanelBytes()),
        accumulator_stride_(args.rows * kAccumulatorRow) {}

  void Run() const {
    std::byte* const merged = args_.scratch + SumsBytes(schedule_, args_.rows);
    const RowInt8Rows rows(kernel_, args_, merged);
    rows.Run([&](const RowCodes& codes, int64_t first, int64_t end) { Multiply(rows, codes, first, end); });
  }

 private:
  void Multiply(const RowInt8Rows& rows, const RowCodes& codes, int64_t first, int64_t end) const {
    const int64_t blocks = (args_.rows + schedule_.row_block - 1) / schedule_.row_block;
    int64_t width = PanelsAtOnce(kernel_.spec, schedule_, RowsOfBlock(args_.rows, blocks, 0), blocks);
    for (int64_t panel = first; panel < end; panel += width) {
      while (width > end - panel) width /= 2;
      const OrderedOutputs outputs = rows.OutputsOf(codes, {panel, width, args_.scratch, accumulator_stride_});
      MultiplyPanels(codes, blocks, panel, width, outputs);
    }
  }

  void MultiplyPanels(const RowCodes& codes, int64_t blocks, int64_t panel, int64_t width,
                      const OrderedOutputs& outputs) const {
    GroupsArgs groups;
    groups.a_stride = codes.stride;
    groups.b_stride = panel_bytes_;
    groups.corrections_stride = codes.corrections_stride;
    groups.c_stride = accumulator_stride_;
    const std::byte* const weights = args_.weights + panel * panel_bytes_;
    // One block of rows streams the weights; of several the first ones wait for the panels that come next.
    const int64_t ahead = blocks == 1 ? kStreamAhead / width : width * panel_bytes_;
    int64_t row = 0;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t rows = RowsOfBlock(args_.rows, blocks, i);
      groups.a = codes.codes + row * codes.stride;
      groups.b = weights;
      groups.prefetch = weights + ahead;
      groups.corrections = codes.corrections + row * int64_t{sizeof(int32_t)};
      groups.c = args_.scratch + row * kAccumulatorRow;
      groups.groups = layout_.Groups();
      std::memcpy(groups.row_scales, codes.scales + row, sizeof groups.row_scales);  // some too many
      Enter(kernel_, MicroEntry({WeightForm::kPacked, static_cast<int>(rows), static_cast<int>(width)}), groups);
      outputs.Finish(row, rows);
      row += rows;
    }
  }

  const KernelImage& kernel_;
  const TileArgs& args_;
  const Schedule schedule_;
  const ir::CodeLayout layout_;
  const int64_t panel_bytes_;
  const int64_t accumulator_stride_;
};

}  // namespace

int64_t DeepestGroup(const ir::QuantScheme& scheme) {
  // The most that a code, a zero point taken from it, can be.
  int64_t most = (int64_t{1} << scheme.bits) - 1;
  if (scheme.symmetric) most = UnsignedMidpoint(scheme);
  if (scheme.HasZeroPoint()) most = 255;
  constexpr int64_t kMostCode = 127;
  return INT32_MAX / (kMostCode * most);
}

RowCodesLayout::RowCodesLayout(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows) {
  // A line more, so that rows do not fall into the same sets of the cache.
  codes_stride_ = RoundUp(CodeBytes(spec, schedule) + kCodeSlack, kLine) + kLine;
  // The last tile of a matrix has all of its rows, codes or not.
  const int64_t read_rows = schedule.matrix_rows > 0 ? rows + schedule.matrix_rows - 1 : rows;
  scales_at_ = read_rows * codes_stride_;
  // A block takes so many at once, whatever its rows.
  corrections_at_ = scales_at_ + RoundUp((rows + kMostTileRows) * int64_t{sizeof(float)}, kLine);
  corrections_stride_ = RoundUp(rows * int64_t{sizeof(int32_t)}, kLine);
  bytes_ = corrections_at_ + ir::CodeLayoutOf(spec).Groups() * corrections_stride_;
}

int64_t RowCodesBytes(const KernelImage& kernel, const CodeArgs* codes, int64_t rows) {
  const int64_t orders = ColumnOrders(kernel.spec, codes, 0).count();
  return orders * RowCodesLayout(kernel.spec, kernel.schedule, rows).bytes();
}

int64_t RowCodesScratchBytes(const ir::KernelSpec& spec) {
  if (spec.order == ir::InputOrder::kNatural) return 0;
  return RowBytes(spec) * (spec.x == ir::DType::kFloat32 ? 1 : 2);
}

void MakeRowCodes(const KernelImage& kernel, const PrepareArgs& args) {
  const RowCodesLayout layout(kernel.spec, kernel.schedule, args.rows);
  const ColumnOrders orders(kernel.spec, args.codes, 0);
  for (int64_t order = 0; order < orders.count(); ++order) {
    if (!orders.IsNew(order)) continue;
    std::byte* const out = args.out + order * layout.bytes();
    QuantizeArgs quantize;
    quantize.x = args.x + args.first * args.x_stride;
    quantize.x_stride = args.x_stride;
    quantize.codes = out + layout.codes_at() + args.first * layout.codes_stride();
    quantize.codes_stride = layout.codes_stride();
    quantize.scales = reinterpret_cast<float*>(out + layout.scales_at()) + args.first;
    quantize.corrections = reinterpret_cast<int32_t*>(out + layout.corrections_at()) + args.first;
    quantize.corrections_stride = layout.corrections_stride();
    quantize.rows = args.count;
    const int32_t* const columns = orders.columns(order);
    if (columns == nullptr) {
      Enter(kernel, kQuantizeEntry, quantize);
      continue;
    }
    for (int64_t row = args.first; row < args.first + args.count; ++row) {
      quantize.x = OrderedRow(kernel, args.x + row * args.x_stride, columns, args.scratch);
      quantize.rows = 1;
      Enter(kernel, kQuantizeEntry, quantize);  // the other arguments have moved on
    }
  }
}

int64_t RowInt8ScratchBytes(const ir::KernelSpec& spec, const Schedule& schedule, int64_t rows, int64_t panels) {
  const bool merges = spec.order != ir::InputOrder::kNatural;
  return SumsBytes(schedule, rows) + (merges ? panels * rows * kAccumulatorRow : 0);
}

int64_t RowsOfTile(const ir::KernelSpec& spec, const Schedule& schedule, int64_t most_blocks) {
  const int64_t block_bytes = std::max<int64_t>(1, schedule.row_block * CodeBytes(spec, schedule));
  return std::clamp<int64_t>(kCodesOfTile / block_bytes, 2, most_blocks) * schedule.row_block;
}

Schedule VectorSchedule(const Schedule& schedule) {
  if (schedule.matrix_rows == 0) return schedule;
  Schedule vectors = schedule;
  vectors.matrix_rows = 0;
  vectors.row_block = schedule.few_rows;
  vectors.few_rows = kDecodesAlways;
  return vectors;
}

Schedule MakeRowInt8Schedule(const ir::KernelSpec& spec, const RegisterTile& tile) {
  Schedule schedule;
  schedule.few_rows = kDecodesAlways;
  schedule.row_block = tile.rows;
  schedule.panel_block = tile.panels;
  schedule.step = tile.depth;
  schedule.tile_rows = RowsOfTile(spec, schedule, kMostRowBlocks);
  schedule.tile_panels = kPanelsOfTile;
  return schedule;
}

std::vector<MicroKind> RowInt8Kinds(const ir::KernelSpec& spec, const Schedule& schedule) {
  // Of several blocks, whose width is that of the first one.
  const int64_t smallest = (schedule.row_block + 1) / 2, smallest_first = schedule.row_block / 2 + 1;
  std::vector<MicroKind> kinds;
  for (int64_t rows = 1; rows <= schedule.row_block; ++rows) {
    int64_t widest = PanelsAtOnce(spec, schedule, rows, 1);
    if (rows >= smallest) widest = std::max(widest, PanelsAtOnce(spec, schedule, std::max(rows, smallest_first), 2));
    for (int64_t panels = 1; panels <= widest; panels *= 2) {
      kinds.push_back({WeightForm::kPacked, static_cast<int>(rows), static_cast<int>(panels)});
    }
  }
  return kinds;
}

void RunRowInt8(const KernelImage& kernel, const TileArgs& args) {
  if (args.rows > 0 && args.panels > 0) Tile(kernel, args).Run();
}

}  // namespace clikart::codegen
