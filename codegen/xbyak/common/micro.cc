// The register kernels: rows by panels of accumulators, one chain of sums in each lane.

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "kernel_code.h"

namespace clikart::codegen {
namespace {

constexpr int kUnroll = kMicroUnroll;
constexpr int kInputBytes = sizeof(float);  // of a row and step
constexpr int kLine = 64;

// How the vector registers that accumulators leave are used.
struct VectorPlan {
  bool keeps_inputs;  // a step's inputs stay for all panels
  int panels;         // panels whose weights are decoded at once, so that an input serves them all
};

// A vector to decode with, or for products before they are added.
bool NeedsSpare(const MicroShape& shape) { return shape.weights.interleave > 1 || shape.multiply == Multiply::kWords; }

VectorPlan PlanVectors(const MicroShape& shape, int halves, int free) {
  const int least = halves + (NeedsSpare(shape) ? 1 : 0);
  const bool keeps = free - least >= shape.rows;
  const int left = free - (least - halves) - (keeps ? shape.rows : 1);
  int panels = shape.panels;
  while (panels > 1 && panels * halves > left) panels /= 2;
  return {keeps, panels};
}

}  // namespace

StridedRuns KernelCode::TakeRuns(int count, const StridedRuns* shared) {
  StridedRuns runs(count);
  for (int i = 0; i < runs.plan.bases(); ++i) runs.bases.push_back(TakePointer());
  if (shared == nullptr && runs.plan.has_stride()) runs.stride = TakePointer();
  if (shared == nullptr && runs.plan.has_triple()) runs.triple = TakePointer();
  if (shared != nullptr) {
    runs.stride = shared->stride;
    runs.triple = shared->triple;
  }
  return runs;
}

void KernelCode::LoadRuns(const StridedRuns& runs, size_t first, size_t stride) {
  if (runs.plan.has_stride()) mov(runs.stride, Argument(stride));
  if (runs.plan.has_triple()) lea(runs.triple, ptr[runs.stride + runs.stride * 2]);
  mov(runs.bases[0], Argument(first));
}

void KernelCode::SpreadBases(const StridedRuns& runs) {
  for (size_t i = 1; i < runs.bases.size(); ++i) {
    const Reg64& before = runs.bases[i - 1];
    if (runs.plan.group() == 3) {
      lea(runs.bases[i], ptr[before + runs.stride * 2]);
    } else {
      lea(runs.bases[i], ptr[before + runs.stride * 4]);
    }
    add(runs.bases[i], runs.stride);
  }
}

int32_t KernelCode::Micro(const MicroShape& shape) {
  const int32_t entry = Begin();
  const auto& [rows, panels, weights, form, operation, unrolls] = shape;
  const Multiply multiply = operation;
  const int depth_bytes = weights.DepthBytes();
  const int interleave = weights.interleave;
  const int vector_bytes = lanes() * kInputBytes;

  const StridedRuns a = TakeRuns(rows, nullptr);
  const StridedRuns b = TakeRuns(panels, nullptr);
  // Widened panels lie elsewhere than what is asked for: one run is.
  const StridedRuns ahead = TakeRuns(form == WeightForm::kPacked ? panels : 1, &b);
  const Reg64 c = ahead.bases[0];  // before the loop and after it

  const int first_accumulator = TakeVectors(rows * panels * halves());
  const auto accumulator = [&](int row, int panel, int half) {
    return Register(first_accumulator + (row * panels + panel) * halves() + half);
  };
  const VectorPlan plan = PlanVectors(shape, halves(), vectors() - vectors_taken());
  const int first_weight = TakeVectors(plan.panels * halves());
  const auto weight = [&](int panel, int half) { return Register(first_weight + panel * halves() + half); };
  const Vector aux = NeedsSpare(shape) ? TakeVector() : weight(0, 0);
  const bool from_memory = rows == 1 && weights.whole();
  const bool broadcasts =
      !from_memory && broadcasts_operands() && multiply <= Multiply::kDotBf16 && panels * halves() == 1;
  const int first_input = broadcasts ? first_accumulator : TakeVectors(plan.keeps_inputs ? rows : 1);
  const auto input = [&](int row) { return Register(first_input + (plan.keeps_inputs ? row : 0)); };

  const auto prefetch = [&](int step) {
    if (step * depth_bytes % kLine != 0) return;
    for (int panel = 0; panel < ahead.plan.count(); ++panel) prefetcht0(ptr[ahead.At(panel) + step * depth_bytes]);
  };
  const auto accumulate = [&](int step) {
    const int k = step % interleave;
    const int at = (step - k) * depth_bytes;
    for (int first = 0; first < panels; first += plan.panels) {
      for (int i = 0; i < plan.panels * halves() && !from_memory; ++i) {
        Decode(weights, b.At(first + i / halves()) + at, k, i % halves(), weight(i / halves(), i % halves()), aux);
      }
      for (int row = 0; row < rows; ++row) {
        const RegExp from = a.At(row) + step * kInputBytes;
        if (broadcasts) {
          MultiplyAdd(multiply, accumulator(row, 0, 0), weight(0, 0), BroadcastOperand(from), aux);
          continue;
        }
        if (first == 0 || !plan.keeps_inputs) vbroadcastss(input(row), ptr[from]);
        for (int i = 0; i < plan.panels * halves(); ++i) {
          const int panel = i / halves(), half = i % halves();
          if (from_memory) {
            MultiplyAdd(multiply, accumulator(row, first + panel, half), input(row),
                        ptr[b.At(first + panel) + at + half * vector_bytes], aux);
          } else {
            MultiplyAdd(multiply, accumulator(row, first + panel, half), input(row), weight(panel, half), aux);
          }
        }
      }
    }
  };
  const auto advance = [&](int steps) {
    for (const Reg64& base : b.bases) add(base, steps * depth_bytes);
    for (const Reg64& base : a.bases) add(base, steps * kInputBytes);
  };
  // Applies `move` to each accumulator and its place in c.
  const auto each_accumulator = [&](const auto& move) {
    mov(c, Argument(offsetof(MicroArgs, c)));
    for (int panel = 0; panel < panels; ++panel) {
      if (panel > 0) add(c, Argument(offsetof(MicroArgs, c_stride)));
      for (int row = 0; row < rows; ++row) {
        for (int half = 0; half < halves(); ++half) {
          move(accumulator(row, panel, half), ptr[c + (row * static_cast<int>(kAccumulatorRow) + half * vector_bytes)]);
        }
      }
    }
  };
  const int64_t multiplies = int64_t{rows} * panels * halves();
  const std::string name =
      absl::StrCat("micro ", rows, "x", panels, form == WeightForm::kPacked ? " packed" : " widened");

  Label fresh, ready, unrolled, rest, whole, single, done;
  cmp(qword[rdi + offsetof(MicroArgs, resume)], 0);
  je(fresh, T_NEAR);
  each_accumulator([&](const Vector& vector, const Address& place) { vmovups(vector, place); });
  jmp(ready, T_NEAR);
  L(fresh);
  each_accumulator([&](const Vector& vector, const Address&) { vxorps(vector, vector, vector); });
  L(ready);
  if (interleave > 1) PrepareDecode(weights.dtype, aux);

  LoadRuns(a, offsetof(MicroArgs, a), offsetof(MicroArgs, a_stride));
  LoadRuns(b, offsetof(MicroArgs, b), offsetof(MicroArgs, b_stride));
  mov(ahead.bases[0], Argument(offsetof(MicroArgs, prefetch)));
  for (const StridedRuns* const runs : {&a, &b, &ahead}) SpreadBases(*runs);

  // No register counts: where b is says how much is left.
  const Reg64 at_weights = b.bases[0];
  if (unrolls) {
    cmp(at_weights, Argument(offsetof(MicroArgs, unrolled_end)));
    jae(rest, T_NEAR);
    align(32);
    L(unrolled);
    const size_t unrolled_at = getSize();
    for (int step = 0; step < kUnroll; ++step) {
      prefetch(step);
      accumulate(step);
    }
    advance(kUnroll);
    for (const Reg64& base : ahead.bases) add(base, Argument(offsetof(MicroArgs, prefetch_step)));
    cmp(at_weights, Argument(offsetof(MicroArgs, unrolled_end)));
    jb(unrolled, T_NEAR);
    EndLoop(name, unrolled_at, kUnroll * multiplies);
  }
  L(rest);
  // Whole packed steps, and what is left of the last one.
  cmp(at_weights, Argument(offsetof(MicroArgs, whole_end)));
  jae(single, T_NEAR);
  L(whole);
  const size_t whole_at = getSize();
  for (int step = 0; step < interleave; ++step) accumulate(step);
  advance(interleave);
  cmp(at_weights, Argument(offsetof(MicroArgs, whole_end)));
  jb(whole, T_NEAR);
  EndLoop(name + " remainder", whole_at, interleave * multiplies);
  L(single);
  if (interleave > 1) {
    test(byte[rdi + offsetof(MicroArgs, depth)], interleave - 1);
    jz(done, T_NEAR);
    accumulate(0);
  }
  L(done);
  each_accumulator([&](const Vector& vector, const Address& place) { vmovups(place, vector); });
  Return();
  return entry;
}

}  // namespace clikart::codegen
