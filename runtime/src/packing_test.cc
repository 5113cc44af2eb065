#include "packing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace clikart {
namespace {

using ir::DType;
using ir::PanelLayout;

struct Problem {
  PanelLayout layout;
  int64_t taps = 1, channels = 0;
  std::vector<std::vector<std::byte>> storage;
  std::vector<WeightRows> parts;
};

// An element type as it may lie in panels.
struct Form {
  DType dtype;
  int interleave;
};
constexpr Form kForms[] = {
    {DType::kFloat32, 1},  {DType::kFloat16, 1},  {DType::kFloat16, 2},
    {DType::kBFloat16, 1}, {DType::kBFloat16, 2}, {DType::kInt8, 4},
};

Problem MakeProblem(std::mt19937& random, const Form& form, bool gated, const std::vector<int64_t>& part_rows,
                    int64_t taps, int64_t channels) {
  const auto [dtype, interleave] = form;
  Problem problem;
  problem.taps = taps;
  problem.channels = channels;
  const int64_t size = static_cast<int64_t>(ir::SizeOf(dtype));
  int64_t n = 0;
  for (int64_t rows : part_rows) {
    const int64_t stride =
        taps * channels * size + static_cast<int64_t>(random() % 3) * 5;  // any stride, misaligned too
    std::vector<std::byte> bytes(static_cast<size_t>(rows * stride + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    problem.storage.push_back(std::move(bytes));
    problem.parts.push_back({problem.storage.back().data() + 1, rows, stride, taps, channels});
    problem.parts.back().data -= random() % 2;
    n += rows;
  }
  problem.layout = {n, taps * channels, dtype, gated, interleave};
  return problem;
}

// What the layout says about one element.
std::vector<std::byte> PackSlowly(const Problem& problem) {
  const PanelLayout& layout = problem.layout;
  const int64_t size = static_cast<int64_t>(ir::SizeOf(layout.dtype));
  std::vector<std::byte> packed(static_cast<size_t>(layout.TotalBytes()), std::byte{0});
  for (int64_t panel = 0; panel < layout.Panels(); ++panel) {
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      int64_t row = layout.RowOf(panel, lane);
      if (row < 0) continue;
      size_t part = 0;
      while (row >= problem.parts[part].rows) row -= problem.parts[part++].rows;
      for (int64_t k = 0; k < layout.depth; ++k) {
        const int64_t tap = k / problem.channels, channel = k % problem.channels;
        std::memcpy(
            packed.data() + panel * layout.PanelBytes() + layout.OffsetOf(lane, k),
            problem.parts[part].data + row * problem.parts[part].row_stride + (channel * problem.taps + tap) * size,
            static_cast<size_t>(size));
      }
    }
  }
  return packed;
}

void Check(std::mt19937& random, const Problem& problem) {
  const PanelLayout& layout = problem.layout;
  const std::vector<std::byte> expected = PackSlowly(problem);
  std::vector<std::byte> packed(expected.size(), std::byte{0x5a});
  // In two disjoint calls.
  const int64_t cut =
      layout.Panels() == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(layout.Panels()));
  PackPanels(layout, problem.parts, 0, cut, packed.data());
  PackPanels(layout, problem.parts, cut, layout.Panels() - cut, packed.data() + cut * layout.PanelBytes());
  ASSERT_EQ(packed, expected);

  const size_t row_bytes = static_cast<size_t>(layout.depth) * ir::SizeOf(layout.dtype);
  std::vector<std::byte> rows(static_cast<size_t>(layout.n) * row_bytes);
  const int64_t split = layout.n / 3;
  UnpackRows(layout, packed.data(), problem.taps, 0, split, rows.data());
  UnpackRows(layout, packed.data(), problem.taps, split, layout.n - split,
             rows.data() + static_cast<size_t>(split) * row_bytes);
  size_t row = 0;
  for (const WeightRows& part : problem.parts) {
    for (int64_t i = 0; i < part.rows; ++i, ++row) {
      ASSERT_EQ(std::memcmp(rows.data() + row * row_bytes, part.data + i * part.row_stride, row_bytes), 0) << row;
    }
  }
}

TEST(PackingTest, RandomShapesPackAndUnpack) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const Form& form = kForms[random() % std::size(kForms)];
    const bool gated = random() % 2 == 0;
    std::vector<int64_t> rows(1 + random() % 5);
    for (int64_t& count : rows) count = static_cast<int64_t>(random() % 41);
    if (gated && std::accumulate(rows.begin(), rows.end(), int64_t{0}) % 2 != 0) ++rows[0];
    const int64_t taps = random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 9);
    const int64_t channels = 1 + static_cast<int64_t>(random() % (taps == 1 ? 300 : 80));
    SCOPED_TRACE(round);
    Check(random, MakeProblem(random, form, gated, rows, taps, channels));
  }
}

TEST(PackingTest, EdgeSizes) {
  std::mt19937 random(11);
  for (const Form& form : kForms) {
    for (const int64_t n : {1, 2, 8, 15, 16, 17, 31, 32, 33}) {
      for (const int64_t k : {1, 2, 15, 16, 17, 63, 64, 65, 128, 129}) {
        Check(random, MakeProblem(random, form, false, {n}, 1, k));
        if (n % 2 == 0) Check(random, MakeProblem(random, form, true, {n / 2, n / 2}, 1, k));
      }
    }
  }
}

TEST(PackingTest, NothingToPack) {
  PackPanels({0, 4, DType::kFloat32, false}, {}, 0, 0, nullptr);
  UnpackRows({3, 4, DType::kFloat32, false}, nullptr, 1, 0, 0, nullptr);
}

}  // namespace
}  // namespace clikart
