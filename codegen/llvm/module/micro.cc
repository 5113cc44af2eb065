// The register kernels: rows by panels of accumulators, one fma chain in each lane.

#include <algorithm>
#include <cstddef>

#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "panel_driver.h"

namespace clikart::codegen::llvm_module {
namespace {

constexpr int kRowsPerPointer = 3;
constexpr int kLine = 64;
constexpr int kUnrolledRows = 5;  // at least so many
constexpr int kUnroll = 2;        // k steps of a turn of theirs

// One entry under way. The values of its loops are the k steps left, the pointers, then the accumulators.
class Micro {
 public:
  Micro(KernelBuilder& build, int rows, int panels, const Packing& weights, llvm::Function* any_tile)
      : build_(build),
        rows_(rows),
        panels_(panels),
        weights_(weights),
        any_tile_(any_tile),
        vectors_(static_cast<int>(ir::kPanelLanes) / build.lanes()),
        row_pointers_((rows + kRowsPerPointer - 1) / kRowsPerPointer) {}

  int Build() {
    stride_ = build_.IntArgument(offsetof(MicroArgs, a_stride));
    b_stride_ = build_.IntArgument(offsetof(MicroArgs, b_stride));
    llvm::Type* const type = AccumulatorType(build_, weights_.multiply);
    const Values fresh(rows_ * panels_ * vectors_, llvm::Constant::getNullValue(type));
    Value* const resumes = build_.IsPositive(build_.IntArgument(offsetof(MicroArgs, resume)));
    Values state = Pointers();
    const Values accumulators = build_.When(resumes, fresh, [&](const Values&) {
      Values held;
      EachPlace([&](Value* place, int) { held.push_back(build_.LoadVector(type, place)); });
      return held;
    });
    state.insert(state.end(), accumulators.begin(), accumulators.end());
    // Compiling takes time in proportion to the code: only register tiles that many rows spend their time in are
    // unrolled beyond what a packed step asks for.
    const int unroll = rows_ >= kUnrolledRows ? std::max(kUnroll, weights_.interleave) : weights_.interleave;
    state = Repeat(state, unroll);
    EachPlace([&](Value* place, int i) { build_.StoreVector(state[first_accumulator() + i], place); });
    const int multiplies = rows_ * panels_ * vectors_ * unroll;
    if (unroll == 1) return multiplies;
    build_.When(build_.IsPositive(state[kLeft]), {}, [&](const Values&) {
      Value* const depth = build_.IntArgument(offsetof(MicroArgs, depth));
      CallAnyTile(build_, any_tile_, rows_, panels_, build_.CreateSub(depth, state[kLeft]));
      return Values{};
    });
    return multiplies;
  }

 private:
  static constexpr int kLeft = 0, kAhead = 1, kB = 2, kA = 3;
  int first_accumulator() const { return kA + row_pointers_; }

  Values Pointers() {
    Values pointers = {build_.IntArgument(offsetof(MicroArgs, depth)),
                       build_.PointerArgument(offsetof(MicroArgs, prefetch)),
                       build_.PointerArgument(offsetof(MicroArgs, b))};
    Value* a = build_.PointerArgument(offsetof(MicroArgs, a));
    Value* const jump = build_.CreateMul(stride_, build_.getInt64(kRowsPerPointer));
    for (int i = 0; i < row_pointers_; ++i) {
      pointers.push_back(a);
      a = build_.At(a, jump);
    }
    return pointers;
  }

  // Calls `visit` with the place of each accumulator vector in c, in their order.
  template <typename Visit>
  void EachPlace(const Visit& visit) {
    Value* c = build_.PointerArgument(offsetof(MicroArgs, c));
    Value* const c_stride = build_.IntArgument(offsetof(MicroArgs, c_stride));
    int i = 0;
    for (int panel = 0; panel < panels_; ++panel) {
      if (panel > 0) c = build_.At(c, c_stride);
      for (int row = 0; row < rows_; ++row) {
        for (int vector = 0; vector < vectors_; ++vector) {
          visit(build_.At(c, row * kAccumulatorRow + vector * 4 * build_.lanes()), i++);
        }
      }
    }
  }

  Value* PanelAt(Value* first, int panel, int64_t bytes) {
    Value* const stride = build_.CreateMul(b_stride_, build_.getInt64(panel));
    return build_.At(panel == 0 ? first : build_.At(first, stride), bytes);
  }

  // Turns of `steps` k while there are as many.
  Values Repeat(const Values& start, int steps) {
    Value* const turn = build_.getInt64(steps);
    return build_.When(build_.CreateICmpSGE(start[kLeft], turn), start, [&](const Values& first) {
      return build_.Loop("steps", first, [&](const Values& now) {
        Values next = Steps(now, steps);
        next[kAhead] = Prefetch(now[kAhead], steps);
        return KernelBuilder::Turn{next, build_.CreateICmpSGE(next[kLeft], turn)};
      });
    });
  }

  Values Steps(const Values& now, int steps) {
    Values next = now;
    for (int k = 0; k < steps; k += weights_.interleave) PackedStep(now, k, next);
    next[kLeft] = build_.CreateSub(now[kLeft], build_.getInt64(steps));
    next[kB] = build_.At(now[kB], steps * weights_.StepBytes());
    for (int i = 0; i < row_pointers_; ++i) next[kA + i] = build_.At(now[kA + i], steps * int64_t{sizeof(float)});
    return next;
  }

  // The k of a packed step one after the other: each accumulator is one chain.
  void PackedStep(const Values& now, int first, Values& next) {
    std::vector<Values> packed;
    for (int panel = 0; panel < panels_; ++panel) {
      packed.push_back(LoadPacked(build_, weights_, PanelAt(now[kB], panel, first * weights_.StepBytes())));
    }
    for (int k = 0; k < weights_.interleave; ++k) {
      Values inputs;
      for (int panel = 0; panel < panels_; ++panel) {
        const Values b = Decode(build_, weights_, packed[panel], k);
        for (int row = 0; row < rows_; ++row) {
          if (panel == 0) inputs.push_back(LoadInput(build_, weights_.multiply, InputAt(now, row, first + k)));
          for (int vector = 0; vector < vectors_; ++vector) {
            Value*& sum = next[first_accumulator() + (panel * rows_ + row) * vectors_ + vector];
            sum = MultiplyAdd(build_, weights_.multiply, inputs[row], b[vector], sum, false);
          }
        }
      }
    }
  }

  Value* InputAt(const Values& now, int row, int step) {
    Value* const base = now[kA + row / kRowsPerPointer];
    const int multiple = row % kRowsPerPointer;
    Value* const at = multiple == 0 ? base : build_.At(base, build_.CreateMul(stride_, build_.getInt64(multiple)));
    return build_.At(at, step * int64_t{sizeof(float)});
  }

  // Asks for the lines of the next `steps` k, and answers where to go on.
  Value* Prefetch(Value* ahead, int steps) {
    for (int panel = 0; panel < panels_; ++panel) {
      for (int64_t bytes = 0; bytes < steps * weights_.StepBytes(); bytes += kLine) {
        build_.Prefetch(PanelAt(ahead, panel, bytes));
      }
    }
    Value* const step = build_.IntArgument(offsetof(MicroArgs, prefetch_step));
    if (steps >= kMicroUnroll) return build_.At(ahead, build_.CreateMul(step, build_.getInt64(steps / kMicroUnroll)));
    return build_.At(ahead, build_.CreateSDiv(step, build_.getInt64(kMicroUnroll / steps)));
  }

  KernelBuilder& build_;
  const int rows_;
  const int panels_;
  const Packing weights_;
  llvm::Function* const any_tile_;
  const int vectors_;  // of a panel's k step
  const int row_pointers_;
  Value* stride_ = nullptr;
  Value* b_stride_ = nullptr;
};

}  // namespace

int BuildMicro(KernelBuilder& build, int rows, int panels, const Packing& weights, llvm::Function* any_tile) {
  return Micro(build, rows, panels, weights, any_tile).Build();
}

}  // namespace clikart::codegen::llvm_module
