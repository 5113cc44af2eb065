// Addresses of runs that lie a stride apart, from few registers: x86 scales an index by 1, 2, 4 and 8.
#pragma once

#include <xbyak/xbyak.h>

#include <vector>

namespace clikart::codegen {

// Runs reached from each base by multiples of the stride (and of three times the stride).
class StridedPlan {
 public:
  explicit StridedPlan(int count) : count_(count), group_(count <= 3 || count == 6 ? 3 : 5) {}

  int count() const { return count_; }
  int group() const { return group_; }  // runs of one base
  int bases() const { return (count_ + group_ - 1) / group_; }
  bool has_stride() const { return count_ > 1; }
  bool has_triple() const { return group_ > 3 && count_ > 3; }

 private:
  int count_;
  int group_;
};

// One set of bases; several sets may share the registers of the stride.
struct StridedRuns {
  explicit StridedRuns(int count) : plan(count) {}

  StridedPlan plan;
  std::vector<Xbyak::Reg64> bases;
  Xbyak::Reg64 stride, triple;

  Xbyak::RegExp At(int run) const {
    const Xbyak::RegExp base(bases[static_cast<size_t>(run / plan.group())]);
    const int multiple = run % plan.group();
    if (multiple == 0) return base;
    return multiple == 3 ? base + triple : base + stride * multiple;
  }
};

}  // namespace clikart::codegen
