#include "conv_body.h"
#include "status_macros.h"

namespace clikart {
namespace {

// A launch's copies are the images of the batch, and in each the groups of the convolution.
struct ConvContext {
  EngineContext base;
  int64_t x_image = 0, y_image = 0;  // bytes from an image to the next
  int64_t x_slice = 0, y_slice = 0;  // bytes from a group to the next
};

void MoveToCopy(void* context, int64_t copy, codegen::TileArgs& args) {
  const ConvContext& conv = *static_cast<const ConvContext*>(context);
  const int64_t slices = conv.base.engine->slices();
  const int64_t image = copy / slices, slice = copy % slices;
  args.x += image * conv.x_image + slice * conv.x_slice;
  args.y += image * conv.y_image + slice * conv.y_slice;
  conv.base.engine->MoveToSlice(slice, args);
}

// x with its channels side by side.
absl::StatusOr<Tensor> ChannelsTogether(const Tensor& x) {
  if (x.shape().back() <= 1 || x.strides().back() == 1) return x;
  return x.Contiguous();
}

}  // namespace

absl::Status RunConv(const Engine& engine, const Kernel* kernel, ConvGrid& grid, const Tensor& x, const Shape& sizes,
                     const Output& y) {
  const ir::KernelSpec& spec = engine.spec();
  const int64_t x_size = static_cast<int64_t>(ir::SizeOf(x.dtype()));
  const int64_t y_size = static_cast<int64_t>(ir::SizeOf(kernel->image.spec.y));
  ConvContext context{.base = {&engine}, .x_slice = spec.k * x_size, .y_slice = spec.n * y_size};
  Launch launch;
  launch.kernel = kernel;
  launch.context = &context;
  launch.args.y = y.data;
  launch.args.y_stride = y.stride;
  engine.Describe(launch);

  Rows rows;
  std::shared_ptr<const ConvGrid::Table> table;
  int64_t images = 1;
  if (grid.pointwise()) {
    CLIKART_ASSIGN_OR_RETURN(rows, RowsOf(x));
    launch.args.x_stride = rows.stride;
    launch.args.rows = rows.count;
  } else {
    CLIKART_ASSIGN_OR_RETURN(const Tensor dense, ChannelsTogether(x));
    CLIKART_ASSIGN_OR_RETURN(Tensor::Pinned pinned, dense.Pin());
    rows.memory = std::move(pinned.memory);
    rows.data = pinned.data;
    const size_t rank = sizes.size();
    Shape strides;
    for (int64_t stride : dense.strides()) strides.push_back(stride * x_size);
    table = grid.TableFor(std::span(x.shape()).subspan(1, rank), std::span(strides).subspan(1, rank), sizes);
    int64_t pixels = 1;
    for (int64_t size : sizes) pixels *= size;
    launch.args.rows = pixels;
    launch.args.offsets = table->data();
    images = x.shape()[0];
    context.x_image = strides[0];
    context.y_image = pixels * y.stride;
  }
  launch.args.x = rows.data;
  launch.copies = images * engine.slices();
  if (launch.copies > 1) launch.bind = &MoveToCopy;
  Run(launch);
  return absl::OkStatus();
}

}  // namespace clikart
