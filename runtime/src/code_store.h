// The quantized weights of one kernel: packed once, or kept as loaded and packed panel by panel in each call.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/codegen/kernel.h"
#include "clikart/ir/kernel_spec.h"
#include "clikart/tensor.h"
#include "code_packing.h"

namespace clikart {

// How weight_g_idx orders the inputs of a layer.
struct GroupOrder {
  ir::InputOrder order = ir::InputOrder::kNatural;
  std::vector<int32_t> columns;  // sorted by group, k ascending inside one; empty where inputs stay as they come
  std::vector<int64_t> begins;   // [groups + 1] positions, where groups are uneven
};
// `g_idx` holds the group of each input, [k] bytes of int32 and checked; null: none. An index that says what
// group_size says already is no order.
GroupOrder GroupOrderOf(const ir::QuantScheme& scheme, int64_t k, const std::byte* g_idx);

// One part, in kernel order.
struct CodePart {
  CodeRows rows;  // `columns` is set by the store
  GroupOrder order;
  float global_scale = 1.0f;
};

class CodeStore {
 public:
  // Of the kernel that `spec` describes. The rows of `parts` have to stay where they are until Pack has returned,
  // or as long as the store lives where it is not called.
  CodeStore(const ir::KernelSpec& spec, std::vector<CodePart> parts);
  CodeStore(const CodeStore&) = delete;
  CodeStore& operator=(const CodeStore&) = delete;

  absl::Status Pack();

  const codegen::CodeArgs& args() const { return args_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* packed() const { return pack_ == nullptr ? nullptr : pack_->data(); }
  int64_t packed_bytes() const { return pack_ == nullptr ? 0 : static_cast<int64_t>(pack_->bytes()); }
  // Panels [first, first + count) to `out`, from the rows.
  void PackPanels(int64_t first, int64_t count, std::byte* out) const {
    PackCodePanels(layout_, rows_, first, count, out);
  }
  // From the pack, as the checkpoint has them: weight rows [first_row, first_row + shape[0]).
  absl::StatusOr<Tensor> ReadWeight(int64_t first_row, const Shape& shape) const;
  absl::StatusOr<Tensor> ReadHeaders(HeaderField field, int64_t first_row, const Shape& shape, DType dtype) const;

 private:
  // The part that has that weight row, and where its rows begin.
  const CodePart& PartOf(int64_t row, int64_t& begin) const;
  void KeepRowEnds();
  // That of the first part with the same order: kernels tell orders by their tables. The part's own goes.
  const int32_t* TableOf(CodePart& part);

  const ir::QuantScheme scheme_;
  const int64_t depth_;
  std::vector<CodePart> parts_;
  std::vector<CodeRows> rows_;
  std::vector<int64_t> group_begins_;
  std::vector<codegen::ColumnOrder> orders_;
  std::vector<float> lane_scales_;
  ir::CodeLayout layout_;
  codegen::CodeArgs args_;
  int64_t panel_bytes_ = 0;
  std::shared_ptr<Memory> pack_;
  // The last byte of each row where its codes do not fill it: what the checkpoint has there is nothing to a kernel.
  std::vector<std::byte> row_ends_;
};

}  // namespace clikart
