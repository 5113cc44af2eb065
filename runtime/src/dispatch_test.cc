#include "dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "clikart/ir/panel_layout.h"
#include "clikart/runtime.h"
#include "parallel.h"

namespace clikart {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A kernel that checks its tile and adds one to each output it is asked for. Each row of x holds the
// row's number, each panel of the weights begins with the panel's number.
void Mark(const codegen::KernelImage& kernel, const codegen::TileArgs& args) {
  EXPECT_EQ((_mm_getcsr() & ~0x3Fu), 0x1F80u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args.scratch) % 64, 0u);
  EXPECT_GT(args.rows, 0);
  EXPECT_GT(args.panels, 0);
  if (kernel.schedule.tile_rows > 0) {
    EXPECT_LE(args.rows, kernel.schedule.tile_rows);
  }
  if (kernel.schedule.tile_panels > 0) {
    EXPECT_LE(args.panels, kernel.schedule.tile_panels);
  }
  std::memset(args.scratch, 0xee,
              static_cast<size_t>(codegen::ScratchBytes(kernel.spec, kernel.schedule, args.rows, args.panels)));
  const int64_t panel_bytes = kernel.spec.depth() * ir::kPanelLanes * 4;
  for (int64_t p = 0; p < args.panels; ++p) {
    float number;
    std::memcpy(&number, args.weights + p * panel_bytes, sizeof number);
    EXPECT_EQ(number, static_cast<float>(args.first_panel + p));
  }
  for (int64_t r = 0; r < args.rows; ++r) {
    float row;
    std::memcpy(&row,
                args.offsets == nullptr ? args.x + r * args.x_stride : args.x + args.offsets[r * kernel.spec.taps],
                sizeof row);
    float* y = reinterpret_cast<float*>(args.y + r * args.y_stride);
    for (int64_t p = 0; p < args.panels; ++p) y[args.first_panel + p] += 1000 * row + 1;
  }
}

// A whole problem: y has one number for each row and panel.
struct Problem {
  Problem(int64_t m, int64_t panel_count, int64_t k, int64_t slices = 1)
      : rows(m), panels(panel_count), copies(slices) {
    kernel.image.spec.n = panels * ir::kPanelLanes;
    kernel.image.spec.k = k;
    kernel.image.run = Mark;
    kernel.image.schedule.row_block = 6;
    kernel.signature = "mark";
    x.resize(static_cast<size_t>(copies * rows * k));
    for (int64_t r = 0; r < copies * rows; ++r) x[static_cast<size_t>(r * k)] = static_cast<float>(r % 1000);
    weights.resize(static_cast<size_t>(panels * k * ir::kPanelLanes));
    for (int64_t p = 0; p < panels; ++p) weights[static_cast<size_t>(p * k * ir::kPanelLanes)] = static_cast<float>(p);
    y.assign(static_cast<size_t>(copies * rows * panels), 0);
    launch.kernel = &kernel;
    launch.copies = copies;
    launch.args.x = reinterpret_cast<const std::byte*>(x.data());
    launch.args.x_stride = k * 4;
    launch.args.rows = rows;
    launch.args.panels = panels;
    launch.args.weights = reinterpret_cast<const std::byte*>(weights.data());
    launch.panel_bytes = k * ir::kPanelLanes * 4;
    launch.args.y = reinterpret_cast<std::byte*>(y.data());
    launch.args.y_stride = panels * 4;
    launch.context = this;
    if (copies > 1) {
      launch.bind = [](void* context, int64_t copy, codegen::TileArgs& args) {
        const Problem& self = *static_cast<Problem*>(context);
        args.x += copy * self.rows * args.x_stride;
        args.y += copy * self.rows * args.y_stride;
      };
    }
  }

  // Every output was made once, from its own row.
  void Check() const {
    for (int64_t r = 0; r < copies * rows; ++r) {
      for (int64_t p = 0; p < panels; ++p) {
        ASSERT_EQ(y[static_cast<size_t>(r * panels + p)], static_cast<float>(1000 * (r % 1000) + 1)) << r << " " << p;
      }
    }
  }

  int64_t rows, panels, copies;
  Kernel kernel;
  std::vector<float> x, weights, y;
  Launch launch;
};

class DispatchTest : public ::testing::TestWithParam<int> {
 protected:
  DispatchTest() { EXPECT_TRUE(SetNumThreads(GetParam()).ok()); }
  ~DispatchTest() override { (void)SetNumThreads(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, DispatchTest, ::testing::Values(1, 2, 5));

TEST_P(DispatchTest, EveryOutputOnce) {
  for (const int64_t rows : {1, 2, 6, 7, 70, 257}) {
    for (const int64_t panels : {1, 2, 7, 40}) {
      for (const int64_t k : {1, 256}) {
        for (const int64_t tile : {0, 4, 13}) {
          Problem problem(rows, panels, k);
          problem.kernel.image.schedule.tile_rows = 3 * tile;
          problem.kernel.image.schedule.tile_panels = tile;
          clikart::Run(problem.launch);
          SCOPED_TRACE(::testing::Message() << rows << " x " << panels << ", k " << k << ", tile " << tile);
          problem.Check();
        }
      }
    }
  }
}

TEST_P(DispatchTest, Copies) {
  for (const int64_t rows : {1, 3, 100}) {
    Problem problem(rows, 3, 64, 9);
    problem.kernel.image.schedule.tile_rows = 24;
    clikart::Run(problem.launch);
    problem.Check();
  }
}

TEST_P(DispatchTest, IndirectRows) {
  Problem problem(50, 5, 32);
  std::vector<int64_t> offsets;
  for (int64_t r = 0; r < 50; ++r) offsets.insert(offsets.end(), {r * 128, codegen::kZeroTap});
  problem.kernel.image.spec.taps = 2;
  problem.kernel.image.spec.k = 16;
  problem.kernel.image.spec.access = ir::Access::kIndirect;
  problem.kernel.image.schedule.tile_rows = 12;
  problem.launch.args.offsets = offsets.data();
  clikart::Run(problem.launch);
  problem.Check();
}

std::atomic<int64_t> panels_packed;

TEST_P(DispatchTest, PerCallPacksWhatATileReads) {
  for (const int64_t rows : {1, 100}) {
    Problem problem(rows, 37, 300);
    problem.kernel.image.schedule.tile_rows = 24;
    problem.launch.args.weights = nullptr;
    problem.launch.panel_bytes = 300 * 64;
    panels_packed = 0;
    problem.launch.pack = [](void* context, int64_t copy, int64_t first, int64_t count, std::byte* out) {
      EXPECT_EQ(copy, 0);
      panels_packed += count;
      const Problem& self = *static_cast<Problem*>(context);
      std::memcpy(out, reinterpret_cast<const std::byte*>(self.weights.data()) + first * 300 * 64,
                  static_cast<size_t>(count * 300 * 64));
    };
    clikart::Run(problem.launch);
    problem.Check();
    EXPECT_EQ(panels_packed, 37);  // each once, however many calls its rows take
  }
}

TEST_P(DispatchTest, NothingForAnEmptyOutput) {
  const DispatchCounter counter;
  Problem rows(0, 3, 4), panels(3, 0, 4);
  clikart::Run(rows.launch);
  clikart::Run(panels.launch);
  EXPECT_EQ(counter.total(), 0);
}

TEST(DispatchCounterTest, CountsThisThreadAndNests) {
  Problem problem(4, 2, 8);
  clikart::Run(problem.launch);
  const DispatchCounter outer;
  EXPECT_EQ(outer.total(), 0);
  clikart::Run(problem.launch);
  {
    const DispatchCounter inner;
    clikart::Run(problem.launch);
    CountDispatch("other");
    EXPECT_EQ(inner.total(), 2);
    EXPECT_THAT(inner.by_kernel(), ElementsAre(Pair("mark", 1), Pair("other", 1)));
    std::thread([] {
      Problem elsewhere(4, 2, 8);
      clikart::Run(elsewhere.launch);
    }).join();
  }
  clikart::Run(problem.launch);
  EXPECT_EQ(outer.total(), 4);
  EXPECT_THAT(outer.by_kernel(), ElementsAre(Pair("mark", 3), Pair("other", 1)));
}

TEST(DispatchCounterTest, MayEndAnywhereInAnyOrder) {
  auto first = std::make_unique<DispatchCounter>();
  auto second = std::make_unique<DispatchCounter>();
  first.reset();
  CountDispatch("k");
  EXPECT_EQ(second->total(), 1);
  std::thread([&] { second.reset(); }).join();
  CountDispatch("k");
  std::unique_ptr<DispatchCounter> orphan;
  std::thread([&] { orphan = std::make_unique<DispatchCounter>(); }).join();
  CountDispatch("k");
  EXPECT_EQ(orphan->total(), 0);
}

}  // namespace
}  // namespace clikart
