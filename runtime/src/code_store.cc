#include "code_store.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "parallel.h"
#include "status_macros.h"

namespace clikart {
namespace {

// Rows or panels that one task moves: enough bytes that handing it out costs nothing beside it.
constexpr int64_t kTaskBytes = 256 << 10;

int64_t PerTask(int64_t bytes) { return std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(1, bytes)); }

// Calls work(first, count) over [0, total) in parallel.
template <typename Work>
void InTasks(int64_t total, int64_t bytes_each, const Work& work) {
  const int64_t step = PerTask(bytes_each);
  ParallelFor((total + step - 1) / step, [&](int64_t task) { work(task * step, std::min(step, total - task * step)); });
}

// The identity, for a part without an order among others that have one.
std::vector<int32_t> AsTheyCome(int64_t k) {
  std::vector<int32_t> columns(static_cast<size_t>(k));
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

}  // namespace

GroupOrder GroupOrderOf(const ir::QuantScheme& scheme, int64_t k, const std::byte* g_idx) {
  GroupOrder order;
  if (g_idx == nullptr) return order;
  const auto groups = static_cast<size_t>(scheme.GroupCount(k));
  const int64_t size = scheme.group_size == -1 ? k : scheme.group_size;
  std::vector<int32_t> group_of(static_cast<size_t>(k));
  std::memcpy(group_of.data(), g_idx, group_of.size() * sizeof(int32_t));
  bool natural = true;
  order.begins.assign(groups + 1, 0);
  for (int64_t i = 0; i < k; ++i) {
    const int32_t group = group_of[static_cast<size_t>(i)];
    natural &= group == i / size;
    ++order.begins[static_cast<size_t>(group) + 1];
  }
  if (natural) return {};
  std::partial_sum(order.begins.begin(), order.begins.end(), order.begins.begin());
  order.columns.resize(static_cast<size_t>(k));
  std::vector<int64_t> next(order.begins.begin(), order.begins.end() - 1);
  for (int64_t i = 0; i < k; ++i) {
    const auto position = static_cast<size_t>(next[static_cast<size_t>(group_of[static_cast<size_t>(i)])]++);
    order.columns[position] = static_cast<int32_t>(i);
  }
  order.order = ir::InputOrder::kSorted;
  for (size_t group = 0; group < groups; ++group) {
    if (order.begins[group] != std::min(static_cast<int64_t>(group) * size, k)) order.order = ir::InputOrder::kUneven;
  }
  if (order.order == ir::InputOrder::kSorted) order.begins.clear();
  return order;
}

CodeStore::CodeStore(const ir::KernelSpec& spec, std::vector<CodePart> parts)
    : scheme_(*spec.scheme), depth_(spec.depth()), parts_(std::move(parts)) {
  const bool ordered = spec.order != ir::InputOrder::kNatural;
  for (CodePart& part : parts_) {
    if (ordered && part.order.columns.empty()) part.order.columns = AsTheyCome(depth_);
    part.rows.columns = ordered ? TableOf(part) : nullptr;
    rows_.push_back(part.rows);
    if (ordered) orders_.push_back({part.rows.columns, part.rows.rows});
  }
  if (spec.order == ir::InputOrder::kUneven) group_begins_ = parts_[0].order.begins;
  layout_ = ir::CodeLayoutOf(spec, group_begins_);
  panel_bytes_ = layout_.PanelBytes();
  if (scheme_.HasGlobalScale()) {
    lane_scales_.assign(static_cast<size_t>(layout_.panels.Panels() * ir::kPanelLanes), 1.0f);
    for (int64_t row = 0; row < spec.n; ++row) {
      const auto [panel, lane] = layout_.panels.PlaceOf(row);
      int64_t begin = 0;
      lane_scales_[static_cast<size_t>(panel * ir::kPanelLanes + lane)] = PartOf(row, begin).global_scale;
    }
  }
  args_ = {.orders = orders_, .group_begins = group_begins_, .lane_scales = lane_scales_.data()};
}

const int32_t* CodeStore::TableOf(CodePart& part) {
  const CodePart& first = *std::find_if(
      parts_.begin(), parts_.end(), [&](const CodePart& other) { return other.order.columns == part.order.columns; });
  if (&first != &part) part.order.columns = {};
  return first.order.columns.data();
}

const CodePart& CodeStore::PartOf(int64_t row, int64_t& begin) const {
  const CodePart* part = parts_.data();
  for (begin = 0; row - begin >= part->rows.rows; ++part) begin += part->rows.rows;
  return *part;
}

void CodeStore::KeepRowEnds() {
  if (depth_ * scheme_.bits % 8 == 0) return;
  const int64_t row_bytes = scheme_.CodeBytes(depth_);
  const int used = static_cast<int>(depth_ * scheme_.bits % 8);
  const auto unused = static_cast<std::byte>(0xff << used);
  for (const CodePart& part : parts_) {
    for (int64_t row = 0; row < part.rows.rows; ++row) {
      row_ends_.push_back(part.rows.codes[(row + 1) * row_bytes - 1] & unused);
    }
  }
}

absl::Status CodeStore::Pack() {
  CLIKART_ASSIGN_OR_RETURN(pack_, Memory::Allocate(static_cast<size_t>(layout_.TotalBytes())));
  InTasks(layout_.panels.Panels(), panel_bytes_,
          [&](int64_t first, int64_t count) { PackPanels(first, count, pack_->data() + first * panel_bytes_); });
  KeepRowEnds();
  rows_.clear();
  return absl::OkStatus();
}

absl::StatusOr<Tensor> CodeStore::ReadWeight(int64_t first_row, const Shape& shape) const {
  CLIKART_ASSIGN_OR_RETURN(Tensor weight, Tensor::Empty(shape, scheme_.CodeDType()));
  if (shape[0] == 0) return weight;
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, weight.Pin());
  const int64_t row_bytes = scheme_.CodeBytes(depth_);
  int64_t begin = 0;
  const int32_t* const columns = PartOf(first_row, begin).rows.columns;
  InTasks(shape[0], row_bytes, [&](int64_t first, int64_t count) {
    UnpackCodes(layout_, packed(), columns, first_row + first, count, out.data + first * row_bytes);
    for (int64_t row = first; row < first + count && !row_ends_.empty(); ++row) {
      out.data[(row + 1) * row_bytes - 1] |= row_ends_[static_cast<size_t>(first_row + row)];
    }
  });
  return weight;
}

absl::StatusOr<Tensor> CodeStore::ReadHeaders(HeaderField field, int64_t first_row, const Shape& shape,
                                              DType dtype) const {
  CLIKART_ASSIGN_OR_RETURN(Tensor values, Tensor::Empty(shape, dtype));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, values.Pin());
  const int64_t row_bytes = layout_.Groups() * static_cast<int64_t>(ir::SizeOf(dtype));
  InTasks(shape[0], row_bytes, [&](int64_t first, int64_t count) {
    UnpackHeaders(layout_, packed(), field, first_row + first, count, out.data + first * row_bytes);
  });
  return values;
}

}  // namespace clikart
