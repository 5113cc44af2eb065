// Register kernels over quantized weights that decode codes in registers: rows by panels of accumulators, of which each
// lane's chain starts anew with each group and goes to the output at the group's end, times the group's scale.

#include <cstddef>

#include "code_decoder.h"
#include "code_driver.h"
#include "entries.h"
#include "group_header.h"

namespace clikart::codegen::llvm_module {
namespace {

using Turn = KernelBuilder::Turn;

constexpr int kRowsPerPointer = 3;
constexpr int64_t kLine = 64;

// One entry under way. Its loops carry the steps left, where codes go on, the pointers to rows, then the chains.
class PackedCodes {
 public:
  PackedCodes(KernelBuilder& build, const ir::KernelSpec& spec, int rows, int panels)
      : build_(build),
        layout_(ir::CodeLayoutOf(spec)),
        rows_(rows),
        panels_(panels),
        turn_(static_cast<int>(kLine / layout_.UnitBytes()) * layout_.interleave),
        unrolls_(GainsByUnrolling() && IsWholeTurns(spec)),
        decoders_(static_cast<size_t>(panels), CodeDecoder(build, spec, unrolls_ ? kCodePositions : 1)),
        vectors_(decoders_.front().vectors()),
        row_pointers_((rows + kRowsPerPointer - 1) / kRowsPerPointer) {}

  // Answers the multiplications in a turn of the innermost loop.
  int Build() {
    a_stride_ = build_.IntArgument(offsetof(CodeMicroArgs, a_stride));
    b_stride_ = build_.IntArgument(offsetof(CodeMicroArgs, b_stride));
    Value* const steps = build_.IntArgument(offsetof(CodeMicroArgs, steps));
    Value* const sums_stride = build_.IntArgument(offsetof(CodeMicroArgs, sums_stride));
    const int64_t bytes = layout_.GroupBytes(layout_.GroupSteps(0));
    // A group's header, the sums of its inputs, the groups left and its rows.
    Values start = {build_.PointerArgument(offsetof(CodeMicroArgs, b)),
                    build_.PointerArgument(offsetof(CodeMicroArgs, sums)),
                    build_.IntArgument(offsetof(CodeMicroArgs, groups))};
    AddRowPointers(start);
    build_.Loop("group", start, [&](const Values& now) {
      for (int panel = 0; panel < panels_; ++panel) decoders_[panel].BeginGroup(PanelAt(now[0], panel, 0));
      Values state = {steps, build_.At(now[0], layout_.CodesAt())};
      state.insert(state.end(), now.begin() + 3, now.end());
      state.resize(first_chain() + rows_ * panels_ * vectors_,
                   llvm::Constant::getNullValue(build_.Floats(build_.lanes())));
      state = build_.When(build_.IsPositive(steps), state,
                          [&](const Values& first) { return unrolls_ ? WholeTurns(first) : CodeByCode(first); });
      AddGroup(now[0], now[1], state);
      Value* const left = build_.CreateSub(now[2], build_.getInt64(1));
      Values next = {build_.At(now[0], bytes), build_.At(now[1], sums_stride), left};
      next.insert(next.end(), state.begin() + kA, state.begin() + first_chain());
      return Turn{next, build_.IsPositive(left)};
    });
    return rows_ * panels_ * vectors_ * (unrolls_ ? turn_ : 1);
  }

 private:
  static constexpr int kLeft = 0, kB = 1, kA = 2;
  int first_chain() const { return kA + row_pointers_; }
  bool in_units() const { return decoders_.front().in_units(); }

  // With one row decoding is what takes time. Codes whose places are known take an operation less where no permutation
  // looks up all levels. Narrower tiles are for the panels at a matrix's end alone.
  bool GainsByUnrolling() const {
    return rows_ == 1 && panels_ == kMostTilePanels && build_.lanes() == 8 && layout_.interleave > 1;
  }

  // Every group, the last one too, is cache lines of each panel.
  bool IsWholeTurns(const ir::KernelSpec& spec) const {
    return layout_.GroupSteps(0) % turn_ == 0 && spec.depth() % turn_ == 0;
  }

  void AddRowPointers(Values& to) {
    Value* a = build_.PointerArgument(offsetof(CodeMicroArgs, a));
    Value* const jump = build_.CreateMul(a_stride_, build_.getInt64(kRowsPerPointer));
    for (int i = 0; i < row_pointers_; ++i) {
      to.push_back(a);
      a = build_.At(a, jump);
    }
  }

  Value* PanelAt(Value* first, int panel, int64_t bytes) {
    Value* const stride = build_.CreateMul(b_stride_, build_.getInt64(panel));
    return build_.At(panel == 0 ? first : build_.At(first, stride), bytes);
  }

  void Advance(Values& state, int64_t code_bytes, int steps) {
    state[kB] = build_.At(state[kB], code_bytes);
    for (int i = 0; i < row_pointers_; ++i) state[kA + i] = build_.At(state[kA + i], steps * int64_t{sizeof(float)});
  }

  void Prefetch(Value* codes) {
    for (int panel = 0; panel < panels_; ++panel) build_.Prefetch(PanelAt(codes, panel, kStreamAhead / panels_));
  }

  // A unit of each panel at a time, whose codes are at places that are known.
  Values WholeTurns(const Values& start) {
    return build_.Loop("turn", start, [&](const Values& now) {
      Values next = now;
      Prefetch(now[kB]);
      const Values units = LoadUnits(now[kB]);
      for (int step = 0; step < turn_; ++step) {
        Step(next, now, step, [&](int panel, int vector) {
          return decoders_[panel].DecodeUnits(units[panel * vectors_ + vector], step, vector);
        });
      }
      Advance(next, kLine, turn_);
      next[kLeft] = build_.CreateSub(now[kLeft], build_.getInt64(turn_));
      return Turn{next, build_.IsPositive(next[kLeft])};
    });
  }

  // A line of each panel at a time, and a loop over what is left of its codes. Units are read again for each code, as
  // registers that hold them would be missing for chains.
  Values CodeByCode(const Values& start) {
    Value* const whole = build_.getInt64(turn_);
    return build_.Loop("turn", start, [&](const Values& now) {
      Prefetch(now[kB]);
      Value* const count = build_.CreateSelect(build_.CreateICmpSLT(now[kLeft], whole), now[kLeft], whole);
      Values codes = now;
      codes[kLeft] = count;
      if (in_units()) codes.push_back(build_.Bits(0, build_.lanes()));
      codes = build_.Loop("code", codes, [&](const Values& code) { return OneCode(code); });
      if (in_units()) codes[kB] = build_.At(now[kB], layout_.UnitBytes());
      codes[kLeft] = build_.CreateSub(now[kLeft], count);
      codes.resize(now.size());
      return Turn{codes, build_.IsPositive(codes[kLeft])};
    });
  }

  // Of units, the last value is how far the code at hand lies from the low end.
  Turn OneCode(const Values& now) {
    Values next = now;
    if (in_units()) {
      const Values units = LoadUnits(now[kB]);
      Step(next, now, 0, [&](int panel, int vector) {
        Value* const shifted = build_.CreateLShr(units[panel * vectors_ + vector], now.back());
        return decoders_[panel].DecodeUnits(shifted, 0, vector);
      });
      next.back() = build_.CreateAdd(now.back(), build_.Bits(layout_.scheme.bits, build_.lanes()));
      Advance(next, 0, 1);
    } else {
      Step(next, now, 0,
           [&](int panel, int vector) { return decoders_[panel].DecodeBytes(PanelAt(now[kB], panel, 0), vector); });
      Advance(next, layout_.UnitBytes(), 1);
    }
    next[kLeft] = build_.CreateSub(now[kLeft], build_.getInt64(1));
    return {next, build_.IsPositive(next[kLeft])};
  }

  // The unit at hand of each panel's vectors.
  Values LoadUnits(Value* codes) {
    Values units;
    for (int panel = 0; panel < panels_; ++panel) {
      const Values of_panel = build_.LoadPanelLanes(build_.Ints(build_.lanes()), PanelAt(codes, panel, 0));
      units.insert(units.end(), of_panel.begin(), of_panel.end());
    }
    return units;
  }

  // One step of every chain. `decode` answers a vector of the weight. A step keeps the inputs of all rows or the
  // vectors of all panels in registers, whichever are fewer.
  template <typename Decode>
  void Step(Values& next, const Values& now, int step, const Decode& decode) {
    const bool keeps_inputs = rows_ <= panels_ * vectors_;
    const auto input_of = [&](int row) { return LoadInput(build_, Multiply::kFma, InputAt(now, row, step)); };
    const auto weight_of = [&](int i) { return decode(i / vectors_, i % vectors_); };
    const int kept_count = keeps_inputs ? rows_ : panels_ * vectors_;
    const int other_count = keeps_inputs ? panels_ * vectors_ : rows_;
    Values kept;
    for (int i = 0; i < kept_count; ++i) kept.push_back(keeps_inputs ? input_of(i) : weight_of(i));
    for (int i = 0; i < other_count; ++i) {
      Value* const other = keeps_inputs ? weight_of(i) : input_of(i);
      for (int j = 0; j < kept_count; ++j) {
        const int row = keeps_inputs ? j : i, vector = keeps_inputs ? i : j;
        Value*& chain = next[Chain(vector / vectors_, row, vector % vectors_)];
        chain = build_.Fma(kept[j], other, chain);
      }
    }
  }

  size_t Chain(int panel, int row, int vector) const {
    return static_cast<size_t>(first_chain() + (panel * rows_ + row) * vectors_ + vector);
  }

  Value* InputAt(const Values& now, int row, int step) {
    Value* const base = now[kA + row / kRowsPerPointer];
    const int multiple = row % kRowsPerPointer;
    Value* const at = multiple == 0 ? base : build_.At(base, build_.CreateMul(a_stride_, build_.getInt64(multiple)));
    return build_.At(at, step * int64_t{sizeof(float)});
  }

  // c = fma(t, scale, c) and, with minimums, c = fma(sum of the row's inputs, minimum, c).
  void AddGroup(Value* header, Value* sums, const Values& state) {
    Value* c = build_.PointerArgument(offsetof(CodeMicroArgs, c));
    Value* const c_stride = build_.IntArgument(offsetof(CodeMicroArgs, c_stride));
    for (int panel = 0; panel < panels_; ++panel) {
      if (panel > 0) c = build_.At(c, c_stride);
      Value* const of_panel = PanelAt(header, panel, 0);
      const Values scales = LoadWholeScales(build_, layout_, of_panel, LaneScales(panel));
      const Values minimums = layout_.scheme.minimum ? LoadMinimums(build_, layout_, of_panel) : Values{};
      for (int row = 0; row < rows_; ++row) {
        Value* const place = build_.At(c, row * kAccumulatorRow);
        Values results = build_.LoadPanelLanes(build_.Floats(build_.lanes()), place);
        for (int i = 0; i < vectors_; ++i) results[i] = build_.Fma(state[Chain(panel, row, i)], scales[i], results[i]);
        if (!minimums.empty()) {
          Value* const input = LoadInput(build_, Multiply::kFma, build_.At(sums, row * int64_t{sizeof(float)}));
          for (int i = 0; i < vectors_; ++i) results[i] = build_.Fma(input, minimums[i], results[i]);
        }
        build_.StorePanelLanes(results, place);
      }
    }
  }

  Value* LaneScales(int panel) {
    if (!layout_.scheme.HasGlobalScale()) return nullptr;
    return build_.At(build_.PointerArgument(offsetof(CodeMicroArgs, lane_scales)), panel * kAccumulatorRow);
  }

  KernelBuilder& build_;
  const ir::CodeLayout layout_;
  const int rows_;
  const int panels_;
  const int turn_;  // steps whose codes are a line of a panel
  const bool unrolls_;
  std::vector<CodeDecoder> decoders_;  // by panel
  const int vectors_;                  // of a panel's step
  const int row_pointers_;
  Value* a_stride_ = nullptr;
  Value* b_stride_ = nullptr;
};

}  // namespace

int BuildPackedCodes(KernelBuilder& build, const ir::KernelSpec& spec, const MicroKind& kind) {
  return PackedCodes(build, spec, kind.rows, kind.panels).Build();
}

}  // namespace clikart::codegen::llvm_module
