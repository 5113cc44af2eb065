#include "kernel_testing.h"

#include <cstring>

#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

TEST(KernelTesting, GuardPagesAreThere) {
  for (const auto edge : {GuardedBuffer::Edge::kEnd, GuardedBuffer::Edge::kStart}) {
    const GuardedBuffer buffer(100, edge);
    std::memset(buffer.data(), 1, buffer.bytes());
    volatile std::byte* const outside = edge == GuardedBuffer::Edge::kEnd ? buffer.data() + 100 : buffer.data() - 1;
    EXPECT_DEATH(static_cast<void>(*outside), "");
  }
}

}  // namespace
}  // namespace clikart::codegen
