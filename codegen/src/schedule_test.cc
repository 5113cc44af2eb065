#include "clikart/codegen/schedule.h"

#include "code_tile_driver.h"
#include "gtest/gtest.h"
#include "quant_testing.h"
#include "row_int8_tile_driver.h"
#include "tile_driver.h"

namespace clikart::codegen {
namespace {

TEST(Schedule, ScratchOfTheLargestTileServesAll) {
  for (const RegisterTile& tile : {RegisterTile{1, 1}, RegisterTile{6, 1}, RegisterTile{14, 2}})
    for (const ir::DType x : {ir::DType::kFloat32, ir::DType::kBFloat16}) {
      for (const ir::DType w : {ir::DType::kFloat32, ir::DType::kFloat16}) {
        for (const int64_t depth : {0, 1, 256, 257, 5000}) {
          ir::KernelSpec spec;
          spec.n = 1000;
          spec.k = depth;
          spec.x = x;
          spec.w = w;
          const Schedule schedule = MakeSchedule(spec, tile);
          int64_t before = 0;
          for (int64_t rows = 0; rows <= 80; ++rows) {
            const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
            EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
            EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
            before = bytes;
          }
        }
      }
    }
}

TEST(Schedule, ScratchOfTheLargestTileOfCodesServesAll) {
  for (const char* const scheme : {"int8", "int4_g32", "int4_g7_asym"}) {
    for (const ir::InputOrder order : {ir::InputOrder::kNatural, ir::InputOrder::kSorted}) {
      for (const int64_t depth : {0, 1, 700, 100'000}) {
        ir::KernelSpec spec = SchemeSpec(ir::Contraction::kRowInt8, scheme, 1000, depth);
        spec.order = order;
        const Schedule schedule = MakeSchedule(spec, {.rows = 10, .panels = 2, .depth = 4});
        EXPECT_EQ(schedule.tile_rows % schedule.row_block, 0);
        EXPECT_GT(schedule.tile_rows, schedule.row_block);
        int64_t before = 0;
        for (int64_t rows = 0; rows <= 80; ++rows) {
          const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
          EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
          EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
          before = bytes;
        }
      }
    }
  }
}

TEST(Schedule, ScratchOfTheLargestTileOfWeightOnlyServesAll) {
  for (const char* const scheme : {"int8", "int4_g32", "int4_g32_min", "int4_g7_asym", "fp8_e4m3"}) {
    for (const ir::InputOrder order : {ir::InputOrder::kNatural, ir::InputOrder::kSorted}) {
      for (const int64_t depth : {0, 1, 700, 100'000}) {
        for (const RegisterTile& tile : {RegisterTile{.rows = 14, .panels = 2, .depth = 1, .decoded_rows = 12},
                                         RegisterTile{.rows = 6, .panels = 2, .depth = 1, .decoded_rows = 6},
                                         RegisterTile{.rows = 6, .panels = 1, .depth = 1, .decoded_rows = 4}}) {
          ir::KernelSpec spec = SchemeSpec(ir::Contraction::kWeightOnly, scheme, 1000, depth);
          spec.order = order;
          const Schedule schedule = MakeSchedule(spec, tile);
          int64_t before = 0;
          for (int64_t rows = 1; rows <= 80; ++rows) {
            const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
            EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
            EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
            before = bytes;
          }
        }
      }
    }
  }
}

TEST(Schedule, ScratchOfTheLargestCallOfCodeTilesServesAll) {
  for (const char* const scheme : {"int8", "int4_g32_min", "int8_g1024_min"}) {
    for (const ir::InputOrder order : {ir::InputOrder::kNatural, ir::InputOrder::kSorted}) {
      for (const int64_t depth : {0, 1, 64, 700, 10'000}) {
        ir::KernelSpec spec = SchemeSpec(ir::Contraction::kWeightOnly, scheme, 1000, depth);
        spec.x = ir::DType::kBFloat16;
        spec.order = order;
        spec.product = ir::Product::kTileBf16;
        const Schedule schedule = MakeCodeTileSchedule(spec);
        int64_t before = 0;
        for (int64_t rows = 1; rows <= 80; ++rows) {
          const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
          EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
          EXPECT_GE(bytes, CodeTileScratch(spec, schedule, rows, 4).bytes());
          EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
          before = bytes;
        }
      }
    }
  }
}

TEST(Schedule, ScratchOfTheLargestCallOfRowInt8TilesServesAll) {
  for (const char* const scheme : {"int8", "int8_g50_asym", "int4_g32_min", "int2_g1500"}) {
    for (const ir::InputOrder order : {ir::InputOrder::kNatural, ir::InputOrder::kSorted}) {
      for (const int64_t depth : {32, 700, 100'000}) {
        ir::KernelSpec spec = SchemeSpec(ir::Contraction::kRowInt8, scheme, 1000, depth);
        spec.order = order;
        spec.product = ir::Product::kTileInt8;
        const Schedule schedule = MakeRowInt8TileSchedule(spec);
        EXPECT_EQ(schedule.tile_rows % schedule.row_block, 0);
        int64_t before = 0;
        for (int64_t rows = 0; rows <= 130; ++rows) {
          const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
          EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
          if (rows > schedule.few_rows) {
            EXPECT_GE(bytes, RowInt8TileScratch(spec, schedule, rows, 4).bytes());
          }
          EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
          before = bytes;
        }
      }
    }
  }
}

TEST(Schedule, ScratchOfTheLargestCallOfTilesServesAll) {
  for (const ir::DType dtype : {ir::DType::kBFloat16, ir::DType::kInt8}) {
    for (const int64_t depth : {0, 1, 64, 65, 512, 1024, 5000}) {
      ir::KernelSpec spec;
      spec.n = 1000;
      spec.k = depth;
      spec.x = spec.w = dtype;
      spec.interleave = 4 / static_cast<int>(ir::SizeOf(dtype));
      const Schedule schedule = MakeTileSchedule(spec);
      int64_t before = 0;
      for (int64_t rows = 1; rows <= 270; ++rows) {
        const int64_t bytes = ScratchBytes(spec, schedule, rows, 4);
        EXPECT_GE(bytes, before) << rows << " rows of " << spec.ToString();
        EXPECT_GE(ScratchBytes(spec, schedule, rows, 5), bytes) << rows << " rows of " << spec.ToString();
        before = bytes;
      }
    }
  }
}

}  // namespace
}  // namespace clikart::codegen
