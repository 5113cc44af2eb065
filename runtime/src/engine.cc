#include "engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "clikart/codegen/product.h"
#include "environment.h"
#include "first_use.h"
#include "lane_sums.h"
#include "parallel.h"
#include "status_macros.h"

namespace clikart {
namespace {

// Panels that one task packs: enough bytes that handing it out costs nothing beside it.
constexpr int64_t kPackBytes = 256 << 10;

// Parameters of quantized weights that lie in the groups' headers.
std::optional<HeaderField> HeaderFieldOf(std::string_view parameter) {
  if (parameter == "weight_scale") return HeaderField::kScale;
  if (parameter == "weight_minimum") return HeaderField::kMinimum;
  if (parameter == "weight_zero_point") return HeaderField::kZeroPoint;
  return std::nullopt;
}

}  // namespace

KernelSet::KernelSet(const ir::KernelSpec& base) : base_(base) {
  base_.interleave = codegen::InterleaveFor(base, HostTarget(), ProcessMath());
}

absl::StatusOr<const Kernel*> KernelSet::Compile(DType x, DType y) {
  const size_t index = Index(x, y);
  ir::KernelSpec spec = base_;
  spec.x = x;
  spec.y = y;
  spec.product = codegen::ProductFor(spec, HostTarget(), ProcessMath());
  // Of several callers the cache lets one compile; the first to come back sets the entry.
  CLIKART_ASSIGN_OR_RETURN(std::shared_ptr<const Kernel> kernel, KernelCache::Instance().GetOrCompile(spec));
  const auto* owner = new std::shared_ptr<const Kernel>(std::move(kernel));
  const std::shared_ptr<const Kernel>* first = nullptr;
  if (owned_[index].compare_exchange_strong(first, owner, std::memory_order_acq_rel)) {
    first = owner;
  } else {
    delete owner;
  }
  ready_[index].store(first->get(), std::memory_order_release);
  return first->get();
}

KernelSet::~KernelSet() {
  for (const auto& owner : owned_) delete owner.load(std::memory_order_acquire);
}

std::vector<std::shared_ptr<const Kernel>> KernelSet::Compiled() const {
  std::vector<std::shared_ptr<const Kernel>> kernels;
  for (const auto& owner : owned_) {
    if (const auto* kernel = owner.load(std::memory_order_acquire); kernel != nullptr) kernels.push_back(*kernel);
  }
  return kernels;
}

Engine::Engine(const ir::KernelSpec& base) : kernels_(base) {
  const ir::KernelSpec& spec = kernels_.base();
  layout_ = ir::LayoutOf(spec);
  panels_ = layout_.Panels();
}

absl::Status Engine::Pack(std::span<const std::vector<WeightRows>> slices) {
  slices_ = static_cast<int64_t>(slices.size());
  panel_bytes_ = layout_.PanelBytes();
  CLIKART_ASSIGN_OR_RETURN(pack_, Memory::Allocate(static_cast<size_t>(slices_ * layout_.TotalBytes())));
  const int64_t step = std::max<int64_t>(1, kPackBytes / std::max<int64_t>(1, panel_bytes_));
  const int64_t tasks = (panels_ + step - 1) / step;
  ParallelFor(slices_ * tasks, [&](int64_t task) {
    const int64_t slice = task / tasks, first = task % tasks * step;
    PackPanels(layout_, slices[static_cast<size_t>(slice)], first, std::min(step, panels_ - first),
               pack_->data() + (slice * panels_ + first) * panel_bytes_);
  });
  weights_ = pack_->data();
  return absl::OkStatus();
}

void Engine::ServePerCall(std::vector<WeightRows> rows, std::vector<std::shared_ptr<Memory>> memory) {
  packs_per_call_ = true;
  panel_bytes_ = layout_.PanelBytes();
  rows_ = std::move(rows);
  memory_ = std::move(memory);
}

absl::Status Engine::PackCodes(std::vector<CodePart> parts) {
  codes_ = std::make_unique<CodeStore>(spec(), std::move(parts));
  CLIKART_RETURN_IF_ERROR(codes_->Pack());
  panel_bytes_ = codes_->panel_bytes();
  weights_ = codes_->packed();
  return absl::OkStatus();
}

void Engine::ServeCodesPerCall(std::vector<CodePart> parts, std::vector<std::shared_ptr<Memory>> memory) {
  codes_ = std::make_unique<CodeStore>(spec(), std::move(parts));
  packs_per_call_ = true;
  panel_bytes_ = codes_->panel_bytes();
  memory_ = std::move(memory);
}

void Engine::SetBias(std::span<const float> values) {
  const size_t rows = static_cast<size_t>(spec().n);
  const size_t padded = static_cast<size_t>(panels_ * ir::kPanelLanes);
  bias_.assign(static_cast<size_t>(slices_) * padded, 0.0f);
  for (size_t slice = 0; slice < static_cast<size_t>(slices_); ++slice) {
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(slice * rows), rows,
                bias_.begin() + static_cast<ptrdiff_t>(slice * padded));
  }
}

void Engine::SetInteger(const codegen::IntegerQuant& quant, float input_scale, std::span<const float> weight_scales) {
  const auto lanes = static_cast<size_t>(panels_ * ir::kPanelLanes);
  IntegerColumns& columns = integer_.emplace();
  columns.quant = quant;
  columns.sums.resize(lanes);
  columns.scales.resize(lanes);
  ParallelFor(panels_, [&](int64_t panel) {
    const int64_t first = panel * ir::kPanelLanes;
    SumLanes(layout_, pack_->data() + panel * panel_bytes_, columns.sums.data() + first);
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      const int64_t row = layout_.RowOf(panel, lane);
      columns.scales[static_cast<size_t>(first + lane)] =
          row < 0 ? 0.0f : input_scale * weight_scales[static_cast<size_t>(row)];
    }
  });
  columns.quant.scales = columns.scales.data();
  columns.quant.column_sums = columns.sums.data();
}

KernelSet& Engine::KernelsFor(ir::Activation activation) {
  if (activation == spec().activation) return kernels_;
  const std::lock_guard lock(FirstUseMutex());
  for (const auto& set : others_) {
    if (set->base().activation == activation) return *set;
  }
  ir::KernelSpec base = spec();
  base.activation = activation;
  others_.push_back(std::make_unique<KernelSet>(base));
  return *others_.back();
}

int64_t Engine::weight_bytes() const {
  if (pack_ != nullptr) return static_cast<int64_t>(pack_->bytes());
  if (weights_ != nullptr) return codes_->packed_bytes();
  int64_t bytes = 0;
  for (const auto& memory : memory_) bytes += static_cast<int64_t>(memory->bytes());
  return bytes;
}

bool Engine::Holds(std::string_view parameter) const {
  if (parameter == "weight") return joined_.has_value() || weights_ != nullptr;
  return codes_ != nullptr && weights_ != nullptr && HeaderFieldOf(parameter).has_value();
}

absl::StatusOr<Tensor> Engine::Read(std::string_view parameter, int64_t first_row, const Shape& shape,
                                    DType dtype) const {
  if (codes_ == nullptr) return ReadWeight(first_row, shape);
  const std::optional<HeaderField> field = HeaderFieldOf(parameter);
  return field ? codes_->ReadHeaders(*field, first_row, shape, dtype) : codes_->ReadWeight(first_row, shape);
}

void Engine::AddTo(MemoryTally& tally) const {
  tally.Add(pack_);
  for (const auto& memory : memory_) tally.Add(memory);
  if (joined_.has_value()) tally.Add(joined_->storage()->memory());
  if (codes_ != nullptr) tally.Add(codes_.get(), codes_->packed_bytes());
  const auto bytes = [](const auto& values) { return static_cast<int64_t>(values.size() * sizeof values[0]); };
  tally.Add(&bias_, bytes(bias_));
  if (integer_.has_value()) tally.Add(&integer_, bytes(integer_->scales) + bytes(integer_->sums));
}

absl::StatusOr<Tensor> Engine::ReadWeight(int64_t first_row, const Shape& shape) const {
  if (joined_.has_value()) return joined_->Slice(0, first_row, shape[0]);
  CLIKART_ASSIGN_OR_RETURN(Tensor weight, Tensor::Empty(shape, spec().w));
  CLIKART_ASSIGN_OR_RETURN(const Tensor::Pinned out, weight.Pin());
  const int64_t row_bytes = spec().depth() * static_cast<int64_t>(ir::SizeOf(spec().w));
  if (slices_ > 1) {  // a grouped convolution is read whole
    for (int64_t slice = 0; slice < slices_; ++slice) {
      UnpackRows(layout_, pack_->data() + slice * layout_.TotalBytes(), spec().taps, 0, spec().n,
                 out.data + slice * spec().n * row_bytes);
    }
    return weight;
  }
  const int64_t rows = shape[0];
  const int64_t step = std::max<int64_t>(1, kPackBytes / std::max<int64_t>(1, row_bytes));
  ParallelFor((rows + step - 1) / step, [&](int64_t task) {
    const int64_t first = task * step;
    UnpackRows(layout_, pack_->data(), spec().taps, first_row + first, std::min(step, rows - first),
               out.data + first * row_bytes);
  });
  return weight;
}

void Engine::PackForCall(void* context, int64_t, int64_t first, int64_t count, std::byte* out) {
  const Engine* engine = static_cast<const EngineContext*>(context)->engine;
  if (engine->codes_ != nullptr) return engine->codes_->PackPanels(first, count, out);
  PackPanels(engine->layout_, engine->rows_, first, count, out);
}

}  // namespace clikart
