#include "conv_grid.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "clikart/codegen/kernel.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

using codegen::kZeroTap;

// No geometry beyond this: sums and products of two of its numbers stay far inside 64 bits.
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;

absl::StatusOr<Shape> PerAxis(const std::string& label, const char* what, const Shape& given, size_t rank) {
  Shape values = given.empty() ? Shape(rank, 1) : given;
  if (values.size() != rank) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": ", what, " has ", values.size(), " numbers; expected ",
                                                   rank, ", one for each spatial axis"));
  }
  for (int64_t value : values) {
    if (value < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": ", what, " must be positive; received ", ShapeString(values)));
    }
    if (value > kLargest) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": ", what, " is at most ", kLargest, "; received ", ShapeString(values)));
    }
  }
  return values;
}

int64_t Modulo(int64_t value, int64_t size) { return ((value % size) + size) % size; }

// The input position that padded position `p` reads, or -1 for a zero.
int64_t Source(PaddingMode mode, int64_t p, int64_t size) {
  if (p >= 0 && p < size) return p;
  switch (mode) {
    case PaddingMode::kZeros:
      return -1;
    case PaddingMode::kReplicate:
      return std::clamp<int64_t>(p, 0, size - 1);
    case PaddingMode::kCircular:
      return Modulo(p, size);
    case PaddingMode::kReflect: {
      const int64_t period = 2 * (size - 1);
      const int64_t folded = Modulo(p, period);
      return folded < size ? folded : period - folded;
    }
  }
  return -1;
}

}  // namespace

std::mutex& ConvTablesMutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

absl::StatusOr<std::shared_ptr<ConvGrid>> ConvGrid::Create(const std::string& label, int64_t in_channels,
                                                           const ConvOptions& options) {
  const size_t rank = options.kernel_size.size();
  if (rank < 1 || rank > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": kernel_size has ", rank, " numbers; expected 1 to 3, one for each spatial axis"));
  }
  std::shared_ptr<ConvGrid> grid(new ConvGrid);
  grid->channels_ = in_channels;
  CLIKART_ASSIGN_OR_RETURN(grid->kernel_, PerAxis(label, "kernel_size", options.kernel_size, rank));
  CLIKART_ASSIGN_OR_RETURN(grid->stride_, PerAxis(label, "stride", options.stride, rank));
  CLIKART_ASSIGN_OR_RETURN(grid->dilation_, PerAxis(label, "dilation", options.dilation, rank));
  grid->mode_ = options.padding_mode;
  grid->padding_.assign(rank, {0, 0});
  const bool moves = std::any_of(grid->stride_.begin(), grid->stride_.end(), [](int64_t s) { return s != 1; });
  switch (options.padding_kind) {
    case ConvOptions::Padding::kValid:
      break;
    case ConvOptions::Padding::kSame:
      if (moves) {
        return absl::InvalidArgumentError(
            absl::StrCat(label, ": padding 'same' needs stride 1; received stride ", ShapeString(grid->stride_)));
      }
      for (size_t i = 0; i < rank; ++i) {
        const int64_t total = grid->dilation_[i] * (grid->kernel_[i] - 1);
        grid->padding_[i] = {total / 2, total - total / 2};
      }
      break;
    case ConvOptions::Padding::kExplicit:
      if (options.padding.empty()) break;
      if (options.padding.size() != rank) {
        return absl::InvalidArgumentError(absl::StrCat(label, ": padding has ", options.padding.size(),
                                                       " entries; expected ", rank, ", one for each spatial axis"));
      }
      grid->padding_ = options.padding;
      break;
  }
  bool padded = false, wide = false;
  for (size_t i = 0; i < rank; ++i) {
    const auto [before, after] = grid->padding_[i];
    if (before < 0 || after < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": padding is not negative; received (", before, ", ", after, ") on axis ", i));
    }
    // "same" padding follows a large dilation and may be as large as its product with the kernel.
    if (options.padding_kind == ConvOptions::Padding::kExplicit && std::max(before, after) > kLargest) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": padding is at most ", kLargest, "; received (", before, ", ", after, ") on axis ", i));
    }
    padded |= before != 0 || after != 0;
    wide |= grid->kernel_[i] != 1;
  }
  grid->pointwise_ = !padded && !wide && !moves;
  return grid;
}

int64_t ConvGrid::taps() const {
  int64_t taps = 1;
  for (int64_t size : kernel_) {
    if (__builtin_mul_overflow(taps, size, &taps)) return std::numeric_limits<int64_t>::max();
  }
  return taps;
}

bool ConvGrid::SameGeometry(const ConvGrid& other) const {
  const bool padded = std::any_of(padding_.begin(), padding_.end(), [](auto p) { return p.first + p.second != 0; });
  return kernel_ == other.kernel_ && stride_ == other.stride_ && dilation_ == other.dilation_ &&
         padding_ == other.padding_ && (!padded || mode_ == other.mode_);
}

absl::Status ConvGrid::CheckInput(const std::string& label, std::span<const int64_t> shape) const {
  if (static_cast<int64_t>(shape.size()) == rank() + 2 && shape.back() == channels_) return absl::OkStatus();
  std::string layout = "[batch";
  for (int64_t axis = 0; axis < rank(); ++axis) absl::StrAppend(&layout, ", size", axis);
  return absl::InvalidArgumentError(absl::StrCat(label, " expects a channels-last input [batch, *spatial, C], here ",
                                                 layout, ", ", channels_, "]; received ", ShapeString(shape)));
}

absl::StatusOr<Shape> ConvGrid::OutputSizes(const std::string& label, std::span<const int64_t> spatial) const {
  Shape outputs;
  for (size_t i = 0; i < kernel_.size(); ++i) {
    const auto [before, after] = padding_[i];
    const int64_t size = spatial[i], pad = std::max(before, after);
    if (mode_ != PaddingMode::kZeros && pad > 0) {
      const bool reflect = mode_ == PaddingMode::kReflect;
      if (size == 0 || (reflect && pad >= size)) {
        return absl::InvalidArgumentError(absl::StrCat(
            label, ": ", Text(Name(mode_)), " padding of ", pad, " on spatial axis ", i, " of size ", size, ": ",
            reflect ? absl::StrCat("at most ", std::max<int64_t>(size - 1, 0), " is possible")
                    : std::string("an empty axis has nothing to pad with")));
      }
    }
    const int64_t padded = size + before + after, extent = dilation_[i] * (kernel_[i] - 1) + 1;
    if (padded < extent) {
      return absl::InvalidArgumentError(absl::StrCat(label, ": on spatial axis ", i, " the padded input has size ",
                                                     padded, ", smaller than the kernel's extent ", extent));
    }
    outputs.push_back((padded - extent) / stride_[i] + 1);
  }
  return outputs;
}

std::vector<int64_t> ConvGrid::AxisOffsets(size_t axis, int64_t size, int64_t output, int64_t stride) const {
  std::vector<int64_t> offsets;
  offsets.reserve(static_cast<size_t>(output * kernel_[axis]));
  for (int64_t o = 0; o < output; ++o) {
    for (int64_t tap = 0; tap < kernel_[axis]; ++tap) {
      const int64_t p = o * stride_[axis] - padding_[axis].first + tap * dilation_[axis];
      const int64_t source = Source(mode_, p, size);
      offsets.push_back(source < 0 ? kZeroTap : source * stride);
    }
  }
  return offsets;
}

ConvGrid::Table ConvGrid::MakeTable(std::span<const int64_t> spatial, std::span<const int64_t> strides,
                                    std::span<const int64_t> outputs) const {
  // One axis after the other: the table so far is [pixels, taps] of the leading axes.
  Table table = {0};
  int64_t pixels = 1, taps = 1;
  for (size_t axis = 0; axis < kernel_.size(); ++axis) {
    const std::vector<int64_t> line = AxisOffsets(axis, spatial[axis], outputs[axis], strides[axis]);
    const int64_t width = outputs[axis], reach = kernel_[axis];
    Table next(static_cast<size_t>(pixels * width * taps * reach));
    size_t at = 0;
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      for (int64_t o = 0; o < width; ++o) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t base = table[static_cast<size_t>(pixel * taps + tap)];
          for (int64_t r = 0; r < reach; ++r) {
            const int64_t offset = line[static_cast<size_t>(o * reach + r)];
            next[at++] = base == kZeroTap || offset == kZeroTap ? kZeroTap : base + offset;
          }
        }
      }
    }
    table = std::move(next);
    pixels *= width;
    taps *= reach;
  }
  return table;
}

std::shared_ptr<const ConvGrid::Table> ConvGrid::TableFor(std::span<const int64_t> spatial,
                                                          std::span<const int64_t> strides,
                                                          std::span<const int64_t> outputs) {
  Key key{Shape(spatial.begin(), spatial.end()), Shape(strides.begin(), strides.end())};
  {
    const std::lock_guard lock(ConvTablesMutex());
    for (auto it = tables_.begin(); it != tables_.end(); ++it) {
      if (!(it->key == key)) continue;
      tables_.splice(tables_.begin(), tables_, it);
      return tables_.front().table;
    }
  }
  auto table = std::make_shared<const Table>(MakeTable(spatial, strides, outputs));
  const std::lock_guard lock(ConvTablesMutex());
  tables_.push_front({std::move(key), table});
  size_t count = 0, bytes = 0;
  std::erase_if(tables_, [&](const Entry& entry) {
    bytes += entry.table->size() * sizeof(int64_t);
    return ++count > kTables || (count > 1 && bytes > kTableBytes);
  });
  return table;
}

}  // namespace clikart
