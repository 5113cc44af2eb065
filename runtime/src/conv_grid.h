// Where the taps of a convolution lie: output sizes, padding, and the table of offsets a kernel follows.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clikart/nn.h"

namespace clikart {

// Guards the tables of all convolutions, so that a fork can hold it: a lookup is short beside a convolution.
std::mutex& ConvTablesMutex();

// The geometry of one layer. Everything but the input's size is fixed.
class ConvGrid {
 public:
  // InvalidArgument, with `label`, for lists of the wrong length and numbers out of range.
  static absl::StatusOr<std::shared_ptr<ConvGrid>> Create(const std::string& label, int64_t in_channels,
                                                          const ConvOptions& options);

  int64_t rank() const { return static_cast<int64_t>(kernel_.size()); }
  int64_t taps() const;
  // Every output is one input pixel: rows of x serve as they are.
  bool pointwise() const { return pointwise_; }
  // Kernel, stride, dilation, padding and its mode agree.
  bool SameGeometry(const ConvGrid& other) const;

  // [batch, *spatial, channels], the channels as given at creation.
  absl::Status CheckInput(const std::string& label, std::span<const int64_t> shape) const;
  // Output spatial sizes. InvalidArgument, naming the axis, where the kernel is larger than the padded
  // input (an output of size 0 or less) or the padding mode cannot pad that far.
  absl::StatusOr<Shape> OutputSizes(const std::string& label, std::span<const int64_t> spatial) const;

  // Offsets in bytes from an image's first element, [output pixels, taps], for that spatial size and
  // those strides in bytes. A few tables are kept, the latest used first, so that changing sizes do not
  // grow memory.
  using Table = std::vector<int64_t>;
  std::shared_ptr<const Table> TableFor(std::span<const int64_t> spatial, std::span<const int64_t> strides,
                                        std::span<const int64_t> outputs);

 private:
  struct Key {
    Shape spatial, strides;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const Table> table;
  };
  static constexpr size_t kTables = 8;
  static constexpr size_t kTableBytes = 64 << 20;

  ConvGrid() = default;
  // Input positions of an axis by output and tap, times `stride`; kZeroTap outside.
  std::vector<int64_t> AxisOffsets(size_t axis, int64_t size, int64_t output, int64_t stride) const;
  Table MakeTable(std::span<const int64_t> spatial, std::span<const int64_t> strides,
                  std::span<const int64_t> outputs) const;

  int64_t channels_ = 0;
  Shape kernel_, stride_, dilation_;
  std::vector<std::pair<int64_t, int64_t>> padding_;
  PaddingMode mode_ = PaddingMode::kZeros;
  bool pointwise_ = false;
  std::list<Entry> tables_;  // under ConvTablesMutex()
};

}  // namespace clikart
