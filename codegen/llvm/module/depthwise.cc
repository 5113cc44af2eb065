// The register kernel of depthwise contractions: each lane a channel, each row a chain of its own.

#include <algorithm>
#include <cstddef>

#include "clikart/ir/panel_layout.h"
#include "depthwise_driver.h"
#include "entries.h"

namespace clikart::codegen::llvm_module {

void BuildDepthwise(KernelBuilder& build, ir::DType x, ir::DType weights, int lanes) {
  using Turn = KernelBuilder::Turn;
  constexpr int64_t kAddress = sizeof(const std::byte*);
  const auto element = static_cast<int64_t>(ir::SizeOf(x));
  const Packing packing{weights, 1};
  const int width = build.lanes();
  const int vectors = (lanes + width - 1) / width;
  Value* const taps = build.PointerArgument(offsetof(DepthwiseArgs, taps));
  Value* const end = build.PointerArgument(offsetof(DepthwiseArgs, end));
  Value* const channel_end = build.IntArgument(offsetof(DepthwiseArgs, channel_end));
  Value* const c_stride = build.IntArgument(offsetof(DepthwiseArgs, c_stride));

  // Values: the table's entry, the weights, then the accumulators of row after row.
  const auto multiply_tap = [&](const Values& now, Value* channel) {
    Values next = now;
    const Values w = Decode(build, packing, LoadPacked(build, packing, now[1]), 0);
    for (int row = 0; row < kDepthwiseRows; ++row) {
      Value* const address = build.CreateLoad(build.getPtrTy(), build.At(now[0], row * kAddress));
      Value* const from = build.At(address, channel);
      for (int vector = 0; vector < vectors; ++vector) {
        Value* const place = build.At(from, vector * width * element);
        Value* const value = build.LoadFirst(x, place, std::min(width, lanes - vector * width), width);
        Value*& sum = next[2 + row * vectors + vector];
        sum = build.Fma(w[vector], value, sum);
      }
    }
    next[0] = build.At(now[0], kDepthwiseRows * kAddress);
    next[1] = build.At(now[1], packing.StepBytes());
    return next;
  };

  const Values start = {build.IntArgument(offsetof(DepthwiseArgs, first_channel)),
                        build.PointerArgument(offsetof(DepthwiseArgs, weights)),
                        build.PointerArgument(offsetof(DepthwiseArgs, c))};
  build.Loop("panel", start, [&](const Values& panel) {
    Values state = {taps, panel[1]};
    state.resize(2 + kDepthwiseRows * vectors, llvm::Constant::getNullValue(build.Floats(width)));
    state = build.When(build.CreateICmpULT(taps, end), state, [&](const Values& first) {
      return build.Loop("tap", first, [&](const Values& now) {
        const Values next = multiply_tap(now, panel[0]);
        return Turn{next, build.CreateICmpULT(next[0], end)};
      });
    });
    Value* c = panel[2];
    for (int row = 0; row < kDepthwiseRows; ++row) {
      for (int vector = 0; vector < vectors; ++vector) {
        build.StoreVector(state[2 + row * vectors + vector], build.At(c, vector * width * int64_t{sizeof(float)}));
      }
      c = build.At(c, c_stride);
    }
    Value* const channel = build.CreateAdd(panel[0], build.getInt64(static_cast<uint64_t>(ir::kPanelLanes * element)));
    return Turn{{channel, state[1], build.At(panel[2], kAccumulatorRow)}, build.CreateICmpSLT(channel, channel_end)};
  });
}

}  // namespace clikart::codegen::llvm_module
