#include "block_cache.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "block.h"
#include "gtest/gtest.h"

namespace clikart {
namespace {

constexpr size_t kMega = 1 << 20;

TEST(BlockCacheTest, GivesBackWhatItWasGivenLast) {
  BlockCache cache(8 * kMega);
  const Block first = cache.Take(kMega), second = cache.Take(kMega);
  ASSERT_NE(first.data, nullptr);
  ASSERT_NE(first.data, second.data);
  EXPECT_GE(first.bytes, kMega);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data) % kBlockAlignment, 0u);
  cache.Give(first);
  cache.Give(second);
  EXPECT_EQ(cache.kept_bytes(), first.bytes + second.bytes);
  EXPECT_EQ(cache.Take(kMega).data, second.data);
  EXPECT_EQ(cache.Take(kMega).data, first.data);
  EXPECT_EQ(cache.kept_bytes(), 0u);
  std::memset(first.data, 1, first.bytes);
  cache.Give(first);
  cache.Give(second);
}

TEST(BlockCacheTest, ABlockServesSizesALittleSmaller) {
  BlockCache cache(8 * kMega);
  const Block block = cache.Take(kMega);
  cache.Give(block);
  const Block larger = cache.Take(block.bytes + 1), much_smaller = cache.Take(block.bytes / 2);
  EXPECT_NE(larger.data, block.data);
  EXPECT_NE(much_smaller.data, block.data);
  const Block smaller = cache.Take(block.bytes * 9 / 10);
  EXPECT_EQ(smaller.data, block.data);
  EXPECT_EQ(smaller.bytes, block.bytes);
  for (const Block& each : {larger, much_smaller, smaller}) cache.Give(each);
}

TEST(BlockCacheTest, WhatWaitedLongestGoesFirst) {
  BlockCache cache(3 * kMega);
  Block blocks[4];
  for (Block& block : blocks) block = cache.Take(kMega);
  for (const Block& block : blocks) cache.Give(block);
  EXPECT_EQ(cache.kept_bytes(), 3 * kMega);
  for (int i = 3; i > 0; --i) EXPECT_EQ(cache.Take(kMega).data, blocks[i].data) << i;
  EXPECT_EQ(cache.kept_bytes(), 0u);
  for (int i = 3; i > 0; --i) cache.Give(blocks[i]);
}

TEST(BlockCacheTest, KeepsNothingBeyondItsBudget) {
  BlockCache none(0), small(kMega);
  none.Give(none.Take(kMega / 2));
  EXPECT_EQ(none.kept_bytes(), 0u);
  small.Give(small.Take(2 * kMega));
  EXPECT_EQ(small.kept_bytes(), 0u);
}

TEST(BlockCacheTest, KeepsAFewBlocksOfManySizes) {
  BlockCache cache(512 * kMega);
  std::vector<Block> blocks;
  blocks.reserve(200);
  for (int i = 0; i < 200; ++i) blocks.push_back(cache.Take(100'000));
  for (const Block& block : blocks) cache.Give(block);
  EXPECT_LE(cache.kept_bytes(), 64 * blocks[0].bytes);
}

TEST(BlockCacheTest, WhatNoMemoryHoldsIsNull) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators stop the process instead
  BlockCache cache(kMega);
  EXPECT_EQ(cache.Take(~size_t{0}).data, nullptr);
  EXPECT_EQ(cache.Take(~size_t{0} >> 1).data, nullptr);
#endif
}

TEST(BlockCacheTest, NoTwoThreadsHaveOneBlock) {
  BlockCache cache(4 * kMega);
  std::vector<std::thread> threads;
  std::atomic<int> mixed = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&cache, &mixed, thread] {
      for (int i = 0; i < 500; ++i) {
        const Block block = cache.Take(100'000 + static_cast<size_t>(i % 7) * 10'000);
        std::memset(block.data, thread, 1000);
        for (int at = 0; at < 1000; ++at) mixed += block.data[at] != static_cast<std::byte>(thread);
        cache.Give(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixed, 0);
  EXPECT_LE(cache.kept_bytes(), 4 * kMega);
}

}  // namespace
}  // namespace clikart
